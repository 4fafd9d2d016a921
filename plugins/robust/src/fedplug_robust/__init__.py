"""Aggregators for rounds in which some clients lie."""
