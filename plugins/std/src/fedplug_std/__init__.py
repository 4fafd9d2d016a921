"""What every fedplug protocol needs: data, models, training, clipping, noise, encryption, averaging."""
