"""The privacy account: what each release costs, for each adversary, and what may be claimed of it.

`Ledger` is the door; the formulas in `accounting` are public, with their sources.
It imports the rooms below; it hears events, and nothing in a round knows it.
"""
