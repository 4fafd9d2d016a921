"""A run and its folder: what is kept of it as it runs, and how it continues after an interruption.

`run.start` and `run.resume` are the doors; everything that is written there hears events.
It imports the rooms below.
"""
