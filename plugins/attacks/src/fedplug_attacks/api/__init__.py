"""The API for authors of attacks and metrics: the view, an attack's needs and report, and the truth.

`fedplug_attacks` re-exports the names. It imports the core's `api`, and its record of messages.
"""
