"""The command `fedplug`: its own commands, those of plugins, and a run as plain lines.

A thin layer over functions that anybody can call; plugins use `options` to look alike.
"""
