"""Clover, an example of a third-party plugin: the largest values of an update, shared so that no server sees which."""
