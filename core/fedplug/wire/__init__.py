"""What crosses between parties: calls and replies as bytes, and the cohort through which the server asks.

Components use `ask` and `tell` of the cohort they are handed; only the rooms above open a post office.
It imports `api`.
"""
