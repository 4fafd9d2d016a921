"""FedRE: privacy preferences, PSI scores, budgets for each layer, and aggregation that accounts for the noise."""
