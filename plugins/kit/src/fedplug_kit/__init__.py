"""The kit for plugin authors: what a component must be, and whether it does right what the core does not do for it.

    from fedplug_kit import check_component, conformance

    @pytest.mark.parametrize("name", ["acme.vote", "acme.noise"])
    def test_conforms(name):
        conformance(name)

`check_component` looks at the class alone. `conformance` runs it, with fake data and real parties, messages and links,
and looks at its functions, its samplers, its seals, its messages and its plans.
"""

from fedplug_kit.conform import conformance as conformance
from fedplug_kit.static import HEAVY as HEAVY
from fedplug_kit.static import check_component as check_component
from fedplug_kit.static import import_problems as import_problems
