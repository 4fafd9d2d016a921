"""An engine for fedplug: simulations on a cluster of machines, through Ray."""
