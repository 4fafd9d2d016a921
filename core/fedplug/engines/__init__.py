"""What runs the parties: in this process. Engines that spread them over others are plugins.

An engine moves bytes and keeps parties alive; it knows nothing of the protocol, nor what the bytes say.
It imports `round` and the rooms below.
"""
