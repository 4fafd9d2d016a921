"""What other frameworks deploy as protection: the same arithmetic, with the price that it really has."""
