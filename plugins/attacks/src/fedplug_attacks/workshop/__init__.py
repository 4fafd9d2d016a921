"""The workshop of the sixth hook: `fedplug attack`, the recipe's section, scoring against the truth, results, pictures.

It may import everything of the core and `fedplug_lab`'s canvas and tables; no attack and no metric is named here.
"""
