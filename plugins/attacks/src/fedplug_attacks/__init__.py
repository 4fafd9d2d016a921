"""Attacks on what truly crossed the wire, and the metrics that say what they learnt."""
