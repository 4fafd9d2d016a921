"""From plain data to components at work: every mistake at once, each with its place, discovery, composition.

    Source                data with the position of each part (`source`)
    Source -> Draft       the components and their places (`parts`), and all else (`reader`)
    Draft -> Recipe       once the parts are right (`option_errors`) and fit together (`check`)
    Recipe -> Composition an object for each component (`composition`)

`Recipe` is for everybody; the rest is for the rooms above and for code that checks recipes.
It imports `api`.
"""
