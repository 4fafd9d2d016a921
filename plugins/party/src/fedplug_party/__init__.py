"""One party of a run as a program of its own, and the engine that speaks to such programs.

`line` and `party` are what runs at a site; `engine` and `transport` are what runs at the server. Whoever carries
messages between machines implements `transport.Transport` at the server, and calls `line.ask` beside each party.
"""
