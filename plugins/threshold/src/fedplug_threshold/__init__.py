"""Threshold encryption for fedplug: a joint RLWE key that no party holds; t of n clients open together."""
