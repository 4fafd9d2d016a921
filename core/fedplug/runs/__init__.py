"""A run and its folder: what is kept of it while it goes on, and how it goes on after an interruption.

`run.start` and `run.resume` are the doors; everything that is written there hears events.
It imports the rooms below.
"""
