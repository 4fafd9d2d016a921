"""DLG and iDLG: inputs whose gradient has the least squared distance to the observed one, found with L-BFGS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedplug import Field, Finds

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed, SearchOptions
from fedplug_attacks.labels import MOST_LABELS, likely_labels, single_label

if TYPE_CHECKING:
    import torch

    from fedplug_attacks._matching import Matcher, Record

# Quasi-Newton iterations in one outer step, as in the published code (torch's own number).
_INNER = 20
# A search ends if it has not improved by this share in this many outer steps: at that pace the rest would not halve its
# loss.
_STALLED, _PATIENCE = 1e-2, 5
# With a smaller loss (0.01% of the gradient's length) the examples are found. The search then improves slowly without
# end, so it stops once steps gain little, and no other start is tried.
_FOUND, _CREEPS = 1e-8, 0.3
# Outer steps after which the order of batches is searched again.
_SETTLING = 5


class Dlg(Formed):
    """Deep leakage from gradients (Zhu et al. 2019, Alg. 1): inputs and label logits, optimised together.

    Minimises the sum of squared differences between the gradient of dummy examples and the observed one, with L-BFGS.
    Departures from the paper: the sum is relative to the observed gradient's squared norm, so that one tolerance fits
    all. It covers visible entries only, weighted by their noise if it differs (`form: adaptive`). There are a line
    search and restarts, and the restart with the lowest loss is the answer. The best match of a noisy gradient is an
    image of noise. The answer is then the most probable image given a prior, as in `attacks.inverting` (`prior`), with
    likely labels instead of logits.

    The model must be twice differentiable: sigmoid or tanh, strides or average pooling. For an update of several steps,
    all steps are repeated on the dummy examples in one graph. An unknown order of batches is searched between outer
    steps. Gradients of candidates are clipped like updates, layer by layer if the clip has one norm a layer. A search
    whose loss is close to 0 ends once it gains little, and is the last.
    """

    class Options(SearchOptions):
        """How long and how often it searches."""

        iterations: int = Field(300, ge=1, description="outer steps of a search, each of up to 20 L-BFGS iterations")
        restarts: int = Field(5, ge=1, description="largest number of searches, each from another random start")
        line_search: Literal["strong_wolfe", "none"] = Field(
            "strong_wolfe",
            description="none: fixed steps of size lr, as first published; fails on about a third of images",
        )
        lr: float = Field(1.0, gt=0, allow_inf_nan=False, description="step size of L-BFGS")
        tolerance: float = Field(
            1e-10, ge=0, description="a loss that ends the attack: squared distance over the gradient's squared norm"
        )
        prior: Literal["auto", "gaussian", "none"] = Field(
            "auto",
            description="gaussian: the most probable images given the noise and the public examples (without any, a "
            "spectrum of photographs) instead of the search; none: no prior; auto: gaussian if noise is more than a "
            "tenth of the observation",
        )
        precision: Literal["double", "single"] = Field(
            "double",
            description="floating point numbers of the search; double lets L-BFGS continue where single stalls",
        )

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 32), equal_classes=False),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip
    paper: ClassVar[str] = "DLG"

    def describe(self) -> str:
        """One line for the plan."""
        chosen = self.options
        return f"{self.paper}, {chosen.form}: up to {chosen.restarts} searches of {chosen.iterations} L-BFGS steps"

    def _labels(self, matcher: Matcher) -> tuple[int, ...]:
        """Labels that each search gives all examples, in turn; none: labels are optimised, too."""
        return ()

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Searches for the examples behind the update."""
        from fedplug_attacks._matching import Matcher, Record
        from fedplug_attacks._priors import chosen, most_probable

        options, public = self.options, attacker.facts.public
        matcher = Matcher.of(view, options.form, attacker, options.precision == "double")
        prior = chosen(options.prior, matcher, public, auto=("noise",))
        if prior is not None:
            labels = likely_labels(matcher, public, MOST_LABELS)
            return most_probable(matcher, attacker, prior, labels, options.iterations)
        known = self._labels(matcher)
        starts = max(options.restarts, len(known))
        record = Record(matcher, attacker, starts * options.iterations)
        for number in range(starts):
            given = matcher.one_hot([[known[number % len(known)]] * matcher.batch]) if known else None
            _one_search(options, matcher, record, number, given)
            # Below the loss that noise and rounding leave at the truth, another start cannot do better.
            if record.best <= max(options.tolerance, matcher.floor, _FOUND):
                break
        return record.report()


class Idlg(Dlg):
    """Improved DLG (Zhao et al. 2020, Alg. 1) for a single example: the label from the last layer, then the input.

    The label is the class whose row of the last layer's gradient has a different sign from the others; for a partly
    hidden row, its visible entries decide. If the label is ambiguous, each possible class gets a search, most plausible
    first, and the lowest loss decides. With more than 16 of them the label is optimised as in DLG. The input is found
    as in `attacks.dlg`.
    """

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 1), equal_classes=False),
        what=frozenset({"images", "labels"}), headline=("mse", "low"), success=("mse", "<=", 1e-4),
    )  # fmt: skip
    paper: ClassVar[str] = "iDLG"

    def _labels(self, matcher: Matcher) -> tuple[int, ...]:
        """Those that the last layer leaves open; none if they are too many to try."""
        classes = single_label(matcher.update, matcher.view.num_classes, matcher.form)
        return classes if len(classes) <= MOST_LABELS else ()


def _one_search(
    options: Dlg.Options, matcher: Matcher, record: Record, number: int, known: torch.Tensor | None
) -> None:
    """One search with L-BFGS from a random start; its best state goes into the record."""
    import math

    import torch
    from fedplug import stream

    rng = stream(matcher.view.seed, "attacks.dlg", number)
    if matcher.local is not None:
        matcher.local.begin()
    inputs = matcher.start(rng, options.init, record.attacker.facts.public)[None].requires_grad_()
    logits = torch.from_numpy(rng.standard_normal((1, matcher.batch, matcher.view.num_classes)))
    logits = logits.to(inputs.device, inputs.dtype).requires_grad_(known is None)
    variables = [inputs] if known is not None else [inputs, logits]
    optimiser = torch.optim.LBFGS(
        variables,
        lr=options.lr,
        max_iter=_INNER,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe" if options.line_search == "strong_wolfe" else None,
    )

    def labels() -> torch.Tensor:
        return logits.softmax(-1) if known is None else known

    def closure() -> torch.Tensor:
        loss = matcher.squared(matcher.gradients(inputs, labels())[0])[0]
        for variable, gradient in zip(variables, torch.autograd.grad(loss, variables), strict=True):
            variable.grad = gradient
        return loss.detach()

    best, kept, told, since, reference = math.inf, inputs.detach().clone(), labels().detach(), 0, math.inf
    for step in range(options.iterations):
        before: Any = inputs.detach().clone(), labels().detach()
        loss = float(optimiser.step(closure))  # type: ignore[no-untyped-call]  # the loss before
        record.progress(number * options.iterations + step + 1, loss)
        if not math.isfinite(loss):
            record.offer(math.nan, inputs, [])
            return
        if loss < best:
            best, (kept, told) = loss, before
        found = reference <= _FOUND
        since = 0 if loss < (1 - (_CREEPS if found else _STALLED)) * reference else since + 1
        reference = min(reference, loss) if since == 0 else reference
        if best <= options.tolerance or since >= (1 if found else _PATIENCE):
            break
        if matcher.local is not None and step % _SETTLING == _SETTLING - 1:
            matcher.local.settle_orders(1, lambda: matcher.squared(matcher.gradients(inputs, labels())[0]), rng)
    record.offer(best, kept[0], told[0].argmax(-1).tolist())
