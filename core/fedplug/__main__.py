"""`python -m fedplug`."""

from fedplug.cli.main import program

if __name__ == "__main__":  # worker processes import this module under another name
    program()
