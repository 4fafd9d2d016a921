"""The operations that the core executes: clips, noise, sums, and what is closed and opened. It imports `api`."""
