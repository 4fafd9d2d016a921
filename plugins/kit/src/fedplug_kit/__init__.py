"""The kit for plugin authors: checks of a component's class, and of the work that the core leaves to it.

    from fedplug_kit import check_component, conformance

    @pytest.mark.parametrize("name", ["acme.vote", "acme.noise"])
    def test_conforms(name):
        conformance(name)

`check_component` inspects the class alone. `conformance` runs it with fake data and real parties, messages and links.
It checks functions, samplers, seals, messages and plans.
"""

from fedplug_kit.conform import conformance as conformance
from fedplug_kit.static import HEAVY as HEAVY
from fedplug_kit.static import check_component as check_component
from fedplug_kit.static import import_problems as import_problems
