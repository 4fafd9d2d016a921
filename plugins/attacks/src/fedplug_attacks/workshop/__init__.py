"""The sixth hook's workshop: `fedplug attack`, the recipe's section, scoring against the truth, results and pictures.

It may import everything of the core and `fedplug_lab`'s canvas and tables; no attack and no metric is named here.
"""
