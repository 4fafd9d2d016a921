"""SenseCrypt: clusters of clients, encryption budgets, and a mask of its own for each client."""
