"""From YAML to components at work: reading with positions, every mistake at once, discovery, composition.

`load_recipe` and `Recipe` are for everybody; the rest is for the rooms above and for whoever checks recipes.
It imports `api`.
"""
