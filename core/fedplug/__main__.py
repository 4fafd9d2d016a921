"""`python -m fedplug`: the command, which the distribution `fedplug-terminal` has."""

import sys
from importlib.metadata import entry_points

if __name__ == "__main__":  # worker processes import this module under another name
    commands = entry_points(group="console_scripts", name="fedplug")
    if not commands:
        sys.exit("error: the command fedplug is not installed; install it: pip install fedplug-terminal")
    next(iter(commands)).load()()
