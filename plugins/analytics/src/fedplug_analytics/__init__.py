"""Statistics without a model: sums over clients' records, and answers whose intervals include the noise."""
