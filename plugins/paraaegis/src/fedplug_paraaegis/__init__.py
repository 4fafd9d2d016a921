"""ParaAegis: parallel protection of a model update by encryption and differential privacy."""
