"""What a person sees while a run goes on: plain lines, unless a plugin draws in the terminal.

A display hears the events of a run; whoever starts a run may hand it one of their own.
It imports `api`.
"""
