"""One party of a run as a separate program, and the engine that talks to such programs.

`line` and `party` run at a site. `engine` and `transport` run at the server. Software that carries messages between
machines implements `transport.Transport` at the server and calls `line.ask` at each site.
"""
