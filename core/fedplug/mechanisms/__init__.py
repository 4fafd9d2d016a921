"""The operations that the core executes: clips, noise, sums. It imports `api`."""
