"""Operations where they cannot be executed."""

from __future__ import annotations

from typing import Any

import pytest
from chain_toys import (
    ADD,
    COMBINE,
    MAP,
    POST,
    SCRAMBLE,
    SEAL,
    Says,
    context,
    noise,
    only,
)
from fedplug import (
    Clip,
    Misplaced,
    Noise,
    Open,
    WeightedSum,
    Widen,
)
from fedplug.api.links import Link, fold


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ((ADD.given[0],), {}, "component odd, hook protect: WeightedSum adds the uploads up, once, in the hook"),
        ((COMBINE,), {}, "hook protect: Combine adds the uploads up, once, in the hook aggregate alone"),
        ((*ADD.given, COMBINE), {"hook": "aggregate"}, "Combine adds the uploads up, once"),
        ((Clip(1.0), *ADD.given), {"hook": "aggregate"}, "it gives Clip before the uploads are added up; give"),
        ((), {"hook": "aggregate"}, "component odd, hook aggregate: it gives no sum; give WeightedSum"),
        ((Widen(),), {"hook": "postprocess"}, "hook postprocess: Widen covers what a client keeps; give it in"),
        (SEAL.given, {"hook": "postprocess"}, "hook postprocess: Seal closes uploads; give it in the hook protect"),
        (SCRAMBLE.given, {"hook": "postprocess"}, "Scramble closes uploads; give it in the hook protect"),
        (noise(1.0).given, {"hook": "postprocess"}, "odd adds noise at the clients to the noised sum, which they have"),
        ((Clip(1.0),), {"before": (SEAL,)}, "odd must not come after encryption in the chain of zone noised"),
        ((MAP,), {"before": (SCRAMBLE,)}, "which scramble has closed; put odd before scramble"),
        ((POST,), {"before": (SEAL,), "hook": "postprocess"}, "odd cannot work on the noised sum, which seal has"),
        ((Open(),), {"hook": "postprocess"}, "odd opens the noised sum, which nothing has closed; remove it there"),
        (SEAL.given, {"before": (SEAL,)}, "zone noised: seal has closed it; keep one of the two"),
        ((COMBINE,), {"before": (SEAL,), "hook": "aggregate"}, "odd must not come after encryption in the chain"),
        (
            (Open(),), {"before": (SEAL,), "hook": "postprocess", "site": "server"},
            "odd opens the noised sum at site='server', but seal says that key_server open it, which is site=",
        ),
        ((Clip((1.0, 1.0, 1.0), per="layer"),), {}, "odd clips to norms of 3 layers, and the model has 2; give one a"),
        (noise((1.0,)).given, {}, "odd gives noise for 1 layers, and the model has 2; give one size a layer"),
        ((Noise(mechanism="cauchy", std=1.0),), {}, "odd: the core has no cauchy noise; write Noise.gaussian, "),
    ],
)  # fmt: skip
def test_an_operation_that_cannot_be_executed_there_is_refused_with_the_remedy(
    given: Any, where: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misplaced) as caught:
        only(*given, **where)
    assert said in str(caught.value)


def test_who_closes_values_or_opens_them_is_a_sealer() -> None:
    said = "component odd, hook protect: it gives Seal and is no Sealer; write class Says"
    with pytest.raises(Misplaced, match=said):
        fold([Link("noised", "protect", "odd", Says("odd", *SEAL.given), "client")], context())


def test_who_opens_values_is_told_of_roles_that_there_are() -> None:
    said = r"it gives Open and is no Sealer or Scrambler; write class Says\(fedplug.Sealer\), or class Says"
    with pytest.raises(Misplaced, match=said):
        fold([Link("noised", "postprocess", "odd", Says("odd", Open()), "server")], context())


def test_weights_of_layers_need_uploads_that_are_open() -> None:
    with pytest.raises(Misplaced, match="it weighs layers of uploads of zone noised, which seal has closed"):
        only(WeightedSum(by=lambda blocks, server, facts: {}), hook="aggregate", before=(SEAL,))
