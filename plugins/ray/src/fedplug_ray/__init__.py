"""An engine for fedplug that runs simulations on a cluster of machines with Ray."""
