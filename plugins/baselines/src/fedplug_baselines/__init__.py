"""Baselines: the systems that the papers compare themselves with."""
