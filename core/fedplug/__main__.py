"""`python -m fedplug`: the command, which the distribution `fedplug-terminal` has."""

import sys
from importlib.metadata import entry_points

if __name__ == "__main__":  # worker processes import this module under another name
    commands = entry_points(group="console_scripts", name="fedplug")
    if not commands:
        sys.exit("error: the command is of fedplug-terminal, which you install as fedplug itself")
    next(iter(commands)).load()()
