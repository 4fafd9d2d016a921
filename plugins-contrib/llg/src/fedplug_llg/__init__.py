"""An example of a third-party attack: the labels of a batch from the last layer's gradient."""
