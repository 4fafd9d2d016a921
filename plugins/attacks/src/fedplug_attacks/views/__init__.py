"""One adversary's knowledge of one target: built from recorded messages and the keys that it holds.

It may import everything of the core. No attack receives more than a `fedplug_attacks.View`; the truth is in `workshop`.
"""
