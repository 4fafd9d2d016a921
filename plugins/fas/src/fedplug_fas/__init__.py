"""FAS: a fixed share of the model is encrypted, the rest gets Laplace noise and keyed scrambling."""
