"""FAS: encrypts a fixed share of the model; the other scalars get Laplace noise and keyed scrambling."""
