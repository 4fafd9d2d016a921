"""Tools for runs: the report of one, sweeps over many.

Everything here reads run folders and listens to events; nothing of it takes part in a round. Other plugins may import
`canvas` and `tables` to draw in the same style, and add a section to the report through the entry-point group
`fedplug_lab.section`.
"""
