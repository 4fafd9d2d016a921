"""What authors of attacks and metrics import: the view, what an attack needs of it and gives back, the truth.

`fedplug_attacks` re-exports the names. It imports the core's `api`, and its record of messages.
"""
