"""The standard components of fedplug protocols: data, models, training, clipping, noise, encryption, averaging."""
