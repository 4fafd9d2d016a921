"""The command `fedplug`: the core's own commands, those of plugins, and what a person sees during a run.

A thin layer over functions that anybody can call; plugins use `options` to look alike.
It imports every room.
"""
