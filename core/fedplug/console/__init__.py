"""What a person sees while a run goes on: plain lines, unless a plugin draws in the terminal.

A display hears the events of a run. The caller of a run may hand it another display.
It imports `api`.
"""
