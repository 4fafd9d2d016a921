"""An example of a third-party plugin: agree on whole layers by a Borda count."""
