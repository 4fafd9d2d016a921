"""Whole texts behind an update of a language model, token by token, from the spans of its layers' inputs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Field, Finds, stream
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed
from fedplug_attacks._low_rank import Span
from fedplug_attacks._public import sigma_of
from fedplug_attacks.tokens import moving

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

# A span tells candidates apart by what is outside of it; with less than this many dimensions there it tells nothing.
_LEAST_FREE = 0.9
# Dimensions beyond this add nothing to what a span tells: inputs have few dimensions in which they vary freely.
_MOST_FREE = 32.0
# This share of the absent tokens passes the first layer by chance; later layers reject them.
_LOOSE = 0.02
# Random tokens that show the typical share outside of a span for absent tokens.
_REFERENCES = 24
# Largest number of candidate texts for each text of the batch.
_BEAM = 6
# Under noise, texts that agree in a larger share of their tokens count as versions of one.
_ALIKE = 0.7
# Layers with gaps that are completed, which takes time.
_COMPLETED = 4
# A row of the embedding belongs to a token of the texts if it has at least this share of the longest row's size, and is
# this many standard deviations longer than noise. Tokens that fail this test are not found.
_LEAST_ROW, _DEVIATIONS = 1e-7, 1.0
# Texts that go through the model at once.
_AT_ONCE = 512
# Scores are as good as 0 below this.
_NOTHING = 1e-14


class Dager(Formed):
    """Exact texts of a batch from the spans of gradients (DAGER; Petrov, Dimitrov, Baader, Müller & Vechev 2024).

    The gradient of a fully connected layer has rank at most b, the number of (text, position) pairs of the batch, and
    the span of its rows holds every input of the layer (their Th. 5.1). Of a causal transformer the first such layer
    (queries, keys and values of the first block) sees one token and its position at a time: each token of the
    vocabulary is tried at each position. Then texts are extended from left to right; a text continues if the inputs of
    the deeper layers, which depend on all tokens before, are in the spans of these layers.

    Beyond the paper: every fully connected layer is used, not two, with biases and so also the second layer of a block,
    which is four times as wide: there a batch may have as many tokens as the model is wide. With noise, stated or seen
    in singular values beyond the rank b, a ridge replaces the rank. Hidden entries are left out with their rows or
    columns, or completed at rank b. A candidate passes if its share outside of the spans is below `threshold` times
    that of random tokens.

    With LoRA (`std.lora`) each thin layer is such a layer. B is 0 at first, so only the gradient of B is informative:
    the span of A x, in `rank` dimensions, which reveals texts of less than `rank` tokens in all. Later the gradient of
    A also has rank at most `rank`. So adapters of rank 2 or 8 reveal no text in this way. AdamW, whose steps are not
    sums of gradients, destroys the rank. Models that look at later tokens are not attacked. Naive: hidden entries are
    0.
    """

    finds = Finds(
        needs=Needs(tensors=(("model", "any"),), batch_size=(1, 256), loss=None, classification=False),
        what=frozenset({"texts"}), headline=("text_in_place", "high"), success=("text_in_place", ">=", 0.9),
    )  # fmt: skip

    class Options(Formed.Options):
        """How hidden entries are treated, and which texts pass."""

        threshold: float = Field(
            1e-2, gt=0, lt=1,
            description="a text continues if its share outside of the spans, relative to random tokens, is below this",
        )  # fmt: skip

    def describe(self) -> str:
        """A line for the plan."""
        return f"texts of a batch from the spans of gradients ({self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Rebuilds the texts; not applicable to other models, or where there are too many tokens for every layer."""
        examples = int(view.observed.meaning.examples or 1)
        inner = _Inner.of(view)
        spans, why = _spans_of(view, inner, examples * inner.positions, naive=self.options.form == "naive")
        if not any(name not in inner.local for name in spans):
            return AttackReport("diverged", reason=_reason(view, inner, examples, why))
        search = _Search(inner, spans, examples, self.options.threshold, view.seed, _possible(view, inner))
        texts, shares = search.texts(attacker)
        metrics = {"layers": float(len(spans)), "outside": float(shares.max()), "rank": float(search.rank)}
        over = int(np.count_nonzero(shares > self.options.threshold))
        unfit = ""
        if over:
            unfit = (
                f"{over} of {len(shares)} texts are outside of the spans by {shares.max():.1e} of what random tokens "
                f"are; an exact one is below {self.options.threshold:g}"
            )
        return AttackReport(
            "finished", metrics, texts=texts, tokens=np.unique(texts), seed=view.seed, unfit=unfit,
            gradient_evaluations=0,
        )  # fmt: skip


@dataclasses.dataclass(eq=False)
class _Inner:
    """The inputs of the fully connected layers of a language model.

    Attributes:
        module: the model.
        device: where it is.
        layers: name of each fully connected layer whose weight is trained -> whether its weight is transposed.
        positions, vocabulary: of the texts.
        local: layers whose input at a position depends on the token there alone.
    """

    module: Any
    device: Any
    layers: dict[str, bool]
    positions: int
    vocabulary: int
    local: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: View) -> _Inner:
        """Of the model of a view.

        Raises:
            ViewError: it takes no tokens, or the inputs of its layers depend on later tokens.
        """
        import torch

        module = view.model.module.eval()
        trained = {parameter.name for parameter in view.observed.layout.parameters}
        layers = {
            name: type(part).__name__ == "Conv1D"
            for name, part in module.named_modules()
            if (type(part) is torch.nn.Linear or type(part).__name__ == "Conv1D") and f"{name}.weight" in trained
        }
        embeddings = [part for part in module.modules() if isinstance(part, torch.nn.Embedding)]
        if len(view.shape) != 1 or not any(e.num_embeddings == view.num_classes for e in embeddings):
            raise ViewError(f"the model has no embedding of {view.num_classes} tokens, so its inputs are not text")
        if not layers:
            raise ViewError("no fully connected layer is trained")
        inner = cls(module, view.model.device, layers, view.shape[0], view.num_classes)
        inner._look(view.seed)
        return inner

    def _look(self, seed: int) -> None:
        """Drops layers that not every position enters once, and finds out which are local.

        Raises:
            ViewError: an input depends on later tokens.
        """
        rng = stream(seed, "dager", "look")
        one, other = rng.integers(0, self.vocabulary, (2, self.positions))
        half, alone = self.positions // 2, other.copy()
        later, alone[-1] = one.copy(), one[-1]
        later[half + 1 :] = other[half + 1 :]
        seen = self.inputs(np.stack([one, later, alone]))
        self.layers = {name: self.layers[name] for name in seen}
        if not seen:
            raise ViewError("no fully connected layer sees each position once")
        for name, values in seen.items():
            size = float(np.abs(values).max()) * 1e-4
            if np.abs(values[0, : half + 1] - values[1, : half + 1]).max() > size:
                raise ViewError(f"the input of {name} depends on later tokens; the search goes from left to right")
        same = (n for n, v in seen.items() if np.abs(v[0, -1] - v[2, -1]).max() <= 1e-5 * float(np.abs(v).max()))
        self.local = frozenset(same if self.positions > 1 else self.layers)

    def inputs(self, texts: NDArray[np.int64], only: frozenset[str] | None = None) -> dict[str, NDArray[np.float32]]:
        """The inputs of each layer, float32 (n, T, d), for texts (n, T), T at most `positions`.

        Args:
            texts: of tokens.
            only: layers to ask for; the rest of the model is left out where it comes later. None: all.
        """
        import torch

        wanted = self.layers if only is None else only
        found: dict[str, list[NDArray[np.float32]]] = {name: [] for name in wanted}
        handles = []
        for name in wanted:
            def keep(_: Any, entering: tuple[torch.Tensor, ...], name: str = name) -> None:
                found[name].append(entering[0].detach().float().cpu().numpy())
                if only is not None and all(len(each) == len(found[name]) for each in found.values()):
                    raise _Enough

            handles.append(self.module.get_submodule(name).register_forward_pre_hook(keep))
        try:
            with torch.no_grad():
                for start in range(0, len(texts), _AT_ONCE):
                    try:
                        self.module(torch.from_numpy(texts[start : start + _AT_ONCE]).to(self.device))
                    except _Enough:
                        continue
        finally:
            for handle in handles:
                handle.remove()
        whole = {name: np.concatenate(parts) for name, parts in found.items() if parts}
        return {name: array for name, array in whole.items() if array.shape[:2] == texts.shape}


class _Enough(Exception):  # not an error
    """All that was asked for is there."""


def _spans_of(view: View, inner: _Inner, pairs: int, naive: bool) -> tuple[dict[str, Span], list[str]]:
    """The spans of the informative layers, and why the others are not informative."""
    tensors, places = view.observed.tensors(), {p.name: p for p in view.observed.layout.parameters}
    noise = np.zeros(view.observed.layout.size)
    noise[view.observed.visible] = sigma_of(view.observed) ** 2
    # An update is a difference of two float32 models, and values on a grid are rounded.
    noise += (np.spacing(np.abs(view.start)).astype(np.float64) ** 2 + view.observed.meaning.grid**2) / 12
    spans: dict[str, Span] = {}
    why: list[str] = []
    completed = 0
    by_size = sorted(inner.layers.items(), key=lambda at: (at[0] not in inner.local, places[f"{at[0]}.weight"].size))
    for number, (name, transposed) in enumerate(by_size):
        weight = tensors[f"{name}.weight"]
        matrix = weight.dense(0.0 if naive else np.nan).astype(np.float64)
        matrix = matrix.T if transposed else matrix
        bias = tensors.get(f"{name}.bias")
        if bias is not None and (naive or bias.visible.all()):
            matrix = np.hstack([matrix, bias.dense(0.0).astype(np.float64)[:, None]])
        completed += bool(np.isnan(matrix).any())
        if completed > _COMPLETED and len(spans) >= _COMPLETED:
            break
        seen = weight.visible if weight.visible.any() else slice(None)
        part = places[f"{name}.weight"]
        sigma = float(np.sqrt(noise[part.slice].reshape(part.shape)[seen].mean()))
        try:
            span = Span.of(name, matrix, sigma, pairs, (view.seed + number) % 2**63)
            if span.free < _LEAST_FREE:
                raise ViewError(f"the span of {name} leaves {span.free:.1f} of {len(span.columns)} dimensions free")
        except ViewError as error:
            why.append(str(error))
            continue
        spans[name] = span
    return spans, why


def _possible(view: View, inner: _Inner) -> NDArray[np.int64]:
    """The tokens whose row of the embedding moves, if the embedding is trained and visible; else all."""
    import torch

    tensors = view.observed.tensors()
    for name, part in inner.module.named_modules():
        rows = tensors.get(f"{name}.weight")
        if isinstance(part, torch.nn.Embedding) and part.num_embeddings == inner.vocabulary and rows is not None:
            # A row without visible entries may have moved.
            there = moving(view.observed, rows, _LEAST_ROW, _DEVIATIONS) | ~rows.visible.any(1)
            return np.flatnonzero(there) if there.any() else np.arange(inner.vocabulary)
    return np.arange(inner.vocabulary)


def _reason(view: View, inner: _Inner, examples: int, why: list[str]) -> str:
    """Why no deeper layer has an informative span.

    Raises:
        ViewError: there are too many tokens for every layer, so that no search could help.
    """
    shapes = {p.name: p.shape for p in view.observed.layout.parameters}
    most = max(min(shapes[f"{name}.weight"]) for name in inner.layers)
    pairs = examples * inner.positions
    said = f"{examples} x {inner.positions} tokens are behind the update, and spans are of {most} dimensions at most"
    if pairs > most:
        raise ViewError(said)
    return f"{why[-1] if why else said}; the update descends {view.observed.meaning.loss}"


class _Search:
    """The search for texts that lie in all spans, from left to right."""

    def __init__(
        self, inner: _Inner, spans: dict[str, Span], examples: int, threshold: float, seed: int,
        possible: NDArray[np.int64],
    ) -> None:  # fmt: skip
        self.possible = possible
        self.inner, self.spans, self.examples, self.threshold = inner, spans, examples, threshold
        self.local = frozenset(spans) & inner.local
        self.deep = [name for name in spans if name not in inner.local]
        self.rng = stream(seed, "dager", "references")
        self.rank = max(span.rank for span in spans.values())
        # The share outside of a span with f free dimensions is below a small x with a probability of about x^(f / 2).
        free = {name: min(_MOST_FREE, spans[name].free) for name in self.deep}
        self.weights = {name: dimensions / sum(free.values()) for name, dimensions in free.items()}

    def texts(self, attacker: Attacker) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """At most as many texts as there are examples, best first. For each, the share outside relative to that of
        random tokens (geometric mean over layers, largest over positions)."""
        positions = self.inner.positions
        passing = self._passing()
        texts, scores = np.zeros((1, 0), np.int64), np.zeros((1, 0))
        for position in range(positions):
            tokens = passing[position]
            parents = np.repeat(np.arange(len(texts)), len(tokens))
            children = np.column_stack([texts[parents], np.tile(tokens, len(texts))])
            shares = self._shares(children)
            trail = np.column_stack([scores[parents], shares])
            kept = self._kept(trail, parents)
            texts, scores = children[kept], trail[kept]
            attacker.progress(position + 1, positions, float(shares[kept].max()))
        order = np.argsort(scores.sum(1), kind="stable")
        if np.exp(scores[order].max(1))[: self.examples].max() > self.threshold:  # some are guesses
            order = order[self._apart(texts[order])]
        order = order[: self.examples]
        return texts[order], np.exp(scores[order].max(1))

    def _kept(self, trail: NDArray[np.float64], parents: NDArray[np.intp]) -> NDArray[np.intp]:
        """Indices of the texts (n) that continue. If some are clearly in the spans: those below the threshold, and the
        best one of each parent. Else, under noise, the largest number of candidates."""
        last, total, most = trail[:, -1], trail.mean(1), _BEAM * self.examples
        order = np.lexsort((total, last, parents)) if len(parents) > 1 else np.arange(len(last))
        going = last <= np.log(self.threshold)
        going[order[np.unique(parents[order], return_index=True)[1]]] = True
        if last.min() > 2 * np.log(self.threshold):
            going[:] = True
        chosen = np.flatnonzero(going)
        kept: NDArray[np.intp] = chosen[np.argsort(total[chosen], kind="stable")][:most]
        return kept

    def _apart(self, texts: NDArray[np.int64]) -> NDArray[np.intp]:
        """Indices of as many texts as there are examples: the first ones that are not similar to an earlier one, and
        others if these are too few."""
        chosen: list[int] = []
        alike = (texts[:, None] == texts[None]).mean(2) > _ALIKE
        for number in range(len(texts)):
            if not alike[number, chosen].any():
                chosen.append(number)
        rest = [number for number in range(len(texts)) if number not in chosen]
        return np.sort(np.array([*chosen, *rest][: self.examples], np.intp))

    def _passing(self) -> list[NDArray[np.int64]]:
        """For each position the tokens in the spans of the local layers, and some more; or else all tokens."""
        from scipy.stats import chi2

        vocabulary, positions = self.inner.vocabulary, self.inner.positions
        every = np.arange(vocabulary)
        if not self.local:
            return [self.possible] * positions
        total = np.zeros((vocabulary, positions))
        for start in range(0, vocabulary, _AT_ONCE):
            part = every[start : start + _AT_ONCE]
            seen = self.inner.inputs(np.repeat(part[:, None], positions, axis=1), self.local)
            for name, values in seen.items():
                outside = self.spans[name].outside_of(values.reshape(-1, values.shape[-1]))
                total[part] += np.log(np.maximum(outside, _NOTHING)).reshape(len(part), positions)
        total /= len(self.local)
        free = max(1.0, min(self.spans[name].free for name in self.local))
        most = np.median(total, axis=0) + np.log(chi2.ppf(_LOOSE, free) / chi2.median(free))
        found = []
        for position in range(positions):
            order = self.possible[np.argsort(total[self.possible, position], kind="stable")]
            count = max(2 * self.examples, int(np.count_nonzero(total[self.possible, position] <= most[position])))
            found.append(order[:count])
        return found

    def _shares(self, texts: NDArray[np.int64]) -> NDArray[np.float64]:
        """For each text (n, p) the log of the share of its last position outside of the deeper spans, of the median
        of random tokens there; the mean over layers, weighted by their free dimensions."""
        others = np.repeat(texts[:1], _REFERENCES, axis=0)
        others[:, -1] = self.rng.choice(self.inner.vocabulary, _REFERENCES, replace=self.inner.vocabulary < _REFERENCES)
        seen = self.inner.inputs(np.concatenate([texts, others]), frozenset(self.deep))
        total = np.zeros(len(texts))
        for name in self.deep:
            outside = self.spans[name].outside_of(seen[name][:, -1])
            logs = np.log(np.maximum(outside, _NOTHING))
            total += self.weights[name] * (logs[: len(texts)] - np.median(logs[len(texts) :]))
        return total
