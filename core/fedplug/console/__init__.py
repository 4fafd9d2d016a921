"""What a person sees during a run: plain lines, unless a plugin draws in the terminal.

A display hears the events of a run. The caller of a run may hand it another display.
It imports `api`.
"""
