"""What runs the parties: in this process, or in worker processes. Other engines are plugins.

An engine moves bytes and keeps parties alive; it knows nothing of the protocol, nor what the bytes say.
It imports `round` and the rooms below.
"""
