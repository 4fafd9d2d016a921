"""FedRE: privacy preferences, PSI scores, budgets for each layer, and aggregation that knows of the noise."""
