"""Public functions of examples in place of the examples: a model on them has few weights to train, and to noise."""
