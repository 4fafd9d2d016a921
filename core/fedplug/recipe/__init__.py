"""From YAML to components at work: reading with positions, every mistake at once, discovery, composition.

    YAML -> Source        data with the position of each part (`yaml_source`), under what lies over it (`overlay`)
    Source -> Draft       the components and their places (`parts`), and all else (`reader`)
    Draft -> Recipe       once the parts are right (`option_errors`) and fit together (`check`)
    Recipe -> Composition an object for each component (`composition`)

`load_recipe` and `Recipe` are for everybody; the rest is for the rooms above and for code that checks recipes.
It imports `api`.
"""
