"""SenseCrypt: clusters of clients, encryption budgets, and an individual mask for each client."""
