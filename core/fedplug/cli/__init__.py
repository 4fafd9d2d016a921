"""The command `fedplug`: the core's own commands, those of plugins, and what a person sees while a run goes on.

A thin layer over functions that anybody can call; plugins use `options` to look alike.
It imports every room.
"""
