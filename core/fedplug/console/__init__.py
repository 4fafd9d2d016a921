"""What a person sees while a run goes on: a live picture in a terminal, lines everywhere else.

A display hears the events of a run; whoever starts a run may hand it one of their own.
It imports `api`.
"""
