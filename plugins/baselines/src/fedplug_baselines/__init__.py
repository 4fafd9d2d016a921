"""Baselines: the systems that the papers compare with."""
