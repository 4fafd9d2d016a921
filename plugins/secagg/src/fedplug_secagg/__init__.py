"""Secure aggregation by masks that cancel in the sum (Bonawitz et al., CCS 2017; SecAgg+, Bell et al., CCS 2020)."""
