"""SelectiveShield: Fisher information decides what is encrypted, kept at the client, or noised."""
