"""Secure aggregation by masks that cancel in the sum: Bonawitz et al. (CCS 2017) and SecAgg+ (Bell et al., CCS 2020)."""
