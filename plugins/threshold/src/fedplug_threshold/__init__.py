"""Threshold encryption for fedplug: a joint RLWE key that nobody holds, opened by t of n clients together."""
