"""A round of the protocol: the loop over the hooks, what it asks of parties, and the parties with their data and state.

`Protocol` is the only door; it tells events and names nobody who listens.
It imports `api`, `mechanisms`, `wire` and `recipe`.
"""
