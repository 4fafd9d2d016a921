"""Rules for recipes (`fedplug.rules`): what a trainer cannot do with the recipe's network.

They build the network where the shape of an example is known before the data are loaded, and only where a trainer asks
for something that not every network can give, so that a check seldom imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import FedplugError
from fedplug.api.roles import DataSource, Declares, ModelSource

from fedplug_std.training import Sgd

if TYPE_CHECKING:
    from fedplug_std.torch_model import TorchModel

Complaint = tuple[tuple[str | int, ...], str]
"""A place in the recipe, and what is wrong there."""


def problems(rules: Any) -> Iterator[Complaint]:
    """A batch norm that would see one example at a time."""
    for use, part in _in_parts(rules):
        if part.options.micro_batch == 1 and (layers := _batch_norms(rules)):
            yield use.path, (
                f"micro_batch=1 gives batch norm ({layers}) one example at a time, which has no statistics; write 2 or "
                "more, or use group norm (std.cnn: norm: group)"
            )


def notes(rules: Any) -> list[str]:
    """What parts of a batch cannot add up to."""
    found = []
    for use, part in _in_parts(rules):
        if layers := _batch_norms(rules):
            found.append(
                f"{use.use}: with micro_batch={part.options.micro_batch}, batch norm ({layers}) takes the statistics "
                f"of each part, so the gradient differs from that of the whole batch; group norm gives the same"
            )
        if type(part).batch_loss is not Sgd.batch_loss:
            found.append(
                f"{use.use}: micro_batch adds up the losses of parts, which is right for a mean over examples, and not "
                "for a loss that compares the examples of a batch"
            )
    return found


def _in_parts(rules: Any) -> Iterator[tuple[Any, Sgd]]:
    """Trainers that compute a batch in parts."""
    for use, part in rules.defined:
        if isinstance(part, Sgd) and getattr(part.options, "micro_batch", None):  # FedDPA and others have no parts
            yield use, part


def _batch_norms(rules: Any) -> str:
    """The batch norms of the network, such as `norm1, norm2`; empty where there are none, or nobody knows yet."""
    if (found := network(rules)) is None:
        return ""
    from torch.nn.modules.batchnorm import _BatchNorm

    names = [name for name, part in found[0].module.named_modules() if isinstance(part, _BatchNorm)]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def network(rules: Any) -> tuple[TorchModel, Declares] | None:
    """The recipe's network for the examples that its data set declares, and what it declares; None where that is not
    known before the data are loaded, or another rule complains about it. Built once a check.
    """
    if "std.network" not in rules.memo:
        rules.memo["std.network"] = _built(rules)
    found: tuple[TorchModel, Declares] | None = rules.memo["std.network"]
    return found


def _built(rules: Any) -> tuple[TorchModel, Declares] | None:
    use, data, split = rules.draft.known.get("model"), rules.draft.known.get("data"), rules.draft.split
    model, source = (rules.parts.get(each.name) if each else None for each in (use, data))
    if split is None or not isinstance(model, ModelSource) or not isinstance(source, DataSource):
        return None
    holds = split.agreed.holds if split.agreed else source.declares
    if holds.shape is None or holds.num_classes is None:
        return None
    from fedplug_std.torch_model import TorchModel

    try:
        if model.refuses(holds.shape, holds.num_classes, holds.per):
            return None
        made = model.build(holds.shape, holds.num_classes, 0, "cpu")
    except (FedplugError, ValueError, RuntimeError, TypeError, MemoryError):
        return None  # which `fitting` says, or the run
    return (made, holds) if isinstance(made, TorchModel) else None
