"""`fedplug search`: looks for options of a recipe with which a protocol meets constraints, and which no other beats.

Optuna chooses what to try; runs, their numbers and the look of the page are those of `fedplug_lab`. Optuna is imported
where a search begins, and nowhere before.
"""
