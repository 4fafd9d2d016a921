"""What the core does to values itself: clips, noise, sums. It imports `api`."""
