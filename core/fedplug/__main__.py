"""`python -m fedplug`."""

from fedplug.cli.main import main

if __name__ == "__main__":  # worker processes import this module under another name
    raise SystemExit(main())
