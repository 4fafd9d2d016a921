"""Engines: what runs the parties of a protocol."""
