"""Alt-FL, an example of a third-party plugin: rounds alternate between protected training and synthetic data."""
