"""Secure aggregation by masks that cancel in the sum: SecAgg (Bonawitz et al. 2017), SecAgg+ (Bell et al. 2020)."""
