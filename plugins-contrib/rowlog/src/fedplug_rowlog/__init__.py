"""Rows of a run in a CSV file: an example of a third-party extension that observes events."""
