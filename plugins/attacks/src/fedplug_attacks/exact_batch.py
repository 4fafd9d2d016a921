"""Whole batches behind a first fully connected layer with ReLU, exactly, also where gradient entries are hidden."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from fedplug import Field, Finds, stream
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks import _low_rank as low_rank
from fedplug_attacks._forms import Formed
from fedplug_attacks.api.needs import FIRST_BIAS, FIRST_WEIGHT, role
from fedplug_attacks.api.planting import parameter
from fedplug_attacks.linear_leak import FirstLayer, first_layer, largest_scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedplug.api.blocks import Layout
    from numpy.typing import NDArray

# Searches that run at once.
_STARTS = 256
# Rows and columns with fewer visible entries than the rank plus this are left out, since they are unreliable.
_SPARE = 2
# The largest residual of the factors on the visible entries.
_EXPLAINED = 1e-4
# Conditions for the end of the search: the share of the rows with 0 in its column of dL/dZ that an image must leave
# inactive; and the share of all rows that must agree, if the outputs of the model are not close to 0. A mixture was
# seen to agree in 0.97 of 128 rows, but not in 0.99 of those that are 0; of X-rays, which are much alike, also in
# these.
_INACTIVE, _AGREEING = 0.99, 0.98
# The share of an exact image's own column that may be outside of the column space of the gradient, in rows whose
# outputs are not close to 0. Seen were 1e-6 for true images, and 0.19 or more for mixtures of X-rays.
_OUTSIDE_SPAN = 1e-3
# An error of an image in [0, 1], as a root mean square, that its column must tell: where an image that is moved by this
# toward the others has a column that is as near to the column space, nothing shows that the image is exact.
_TOLD = 1e-3
# Numbers in the columns of all classes, up to which they are computed.
_NUMBERS = 1 << 26
# Outputs below this share of their spread over rows are close to 0.
_ROUNDED = 1e-3
# A sum of two columns has the square of their share of zeros. A direction with more than this power of it is a column.
_COLUMN = 1.7
# How often images predict the zeros of their columns, in each restart.
_ROUNDS = 3
# Largest number of missing columns whose zeros the model can predict, images drawn for that, and the share of known
# columns that every other restart avoids.
_FEW, _DRAWN, _KEPT = 3, 512, 0.9
# Values outside [0, 1] by more than this do not belong to an image.
_OUTSIDE = 1e-2
# Steps of the search for images behind features, and the share of features that they may leave unmatched.
_STEPS, _MATCHED = 600, 0.02
# Singular values below this share of the largest are rounding.
_ROUNDING = 1e-7
# Columns of the gradient in one direction, as a share of all, that are taken for pixels which are black everywhere.
_BACKGROUND = 0.02


class ExactBatch(Formed):
    """All inputs of a batch, from the rank and the zeros of a first layer's gradient (SPEAR; Dimitrov et al. 2024).

    With Z = W x + b and ReLU, the gradient of (W, b) is A (X, 1), where A = dL/dZ has a row for each row of W and a
    column for each example, which is 0 wherever the example leaves the row inactive. The gradient is of rank r, the
    number of distinct examples, and gives its column space; the columns of A are its sparse directions. They are found
    by reweighted least squares from many starts, instead of by sampling submatrices, whose number grows as 2^r. The
    largest set with most zeros gives A and so X, and the gradient of the bias gives each example's scale.

    The few columns that the search misses follow from the model. Their images are in the space orthogonal to the other
    columns, and the rows that they leave inactive show the zeros of their columns.

    Behind convolutions the same gives the features at the first fully connected layer, one set an example, exactly
    (`exact` counts these); images are then searched for whose features they are (`feature_mismatch`).

    Hidden entries are first completed at rank r from the visible ones. If too few biases are visible, the scale follows
    from pixels that are black in every image of the batch, whose columns are all in the direction of the bias, or else
    from the range of images. Pixels and rows with too few visible entries are left out.

    The attack verifies its result without the truth: the factors must explain all visible entries, and the column that
    the model itself gives an image, with one of the classes as its label, must be in the column space of the gradient.
    Columns that are confirmed in this way lead the search for the others. Of several steps, or another loss, an image
    must be inactive, in the model, where its column of A is 0, and images count only if this holds for all. `exact`
    counts the images that pass and have no hidden pixel; if some fail, the report says why. Noise of more than 1e-4 of
    the gradient, weight decay, and other activations cause failures. Several local steps count as one if hardly any row
    changes between active and inactive. Naive: hidden entries are 0.
    """

    finds = Finds(
        needs=Needs(
            model=False, batch_size=(1, 64), loss=None, classification=False
        ),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(Formed.Options):
        """How hidden entries are treated, and how long the search runs."""

        restarts: int = Field(
            20, ge=1, description=f"largest number of sets of {_STARTS} searches; ends when all examples are found"
        )

    def describe(self) -> str:
        """A line for the plan."""
        return f"whole batches behind a first fully connected layer with ReLU ({self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Rebuilds the batch; not applicable where the first layer does not take the image itself, or is too small."""
        naive, layout = self.options.form == "naive", view.observed.layout
        behind = None if role(layout, FIRST_WEIGHT) else _behind_convolutions(layout)
        needs = dataclasses.replace(
            self.finds.needs, tensors=((behind[0] if behind else FIRST_WEIGHT, "any"),), model=behind is not None
        )
        if reason := needs.unmet(view, attacker.facts.public):
            raise ViewError(reason)
        layer = first_layer(view, naive, behind)
        if np.isinf(layer.weight).any() or np.isinf(layer.bias).any():
            return AttackReport("diverged", reason="the first layer's gradient holds values that are not finite")
        examples = int(view.observed.meaning.examples or 1)
        problem = _Problem.of(layer, examples, view.seed % 2**63)
        found = self._search(problem, _Model.of(view, behind), view.seed, attacker)
        if found is None:
            reason = f"no direction in the {problem.factors.left.shape[1]} dimensions of the gradient has zeros"
            return AttackReport("diverged", reason=f"{reason}; the first layer has no ReLU, or noise fills them")
        metrics = {
            "exact": float(found.exact.sum()), "rank": float(problem.factors.left.shape[1]),
            "residual": problem.factors.residual, "hidden_pixels": float(np.isnan(found.images).sum(1).mean()),
        }  # fmt: skip
        if not np.isnan(found.agreement).any():
            metrics["agreement"] = float(found.agreement.min())
        unfit = _unfit(problem, found)
        if behind is None:
            images = layer.finished(found.images, examples, attacker.facts.public, view.shape)
            return AttackReport("finished", metrics, images=images, seed=view.seed, unfit=unfit)
        from fedplug_attacks._features import Front, nearest

        images, shares = nearest(found.images, Front(view, behind[0], training=True), view, attacker, _STEPS)
        metrics["feature_mismatch"] = missed = float(shares.max())
        if missed > _MATCHED and not unfit:
            unfit = f"the features are exact, but the images found miss up to {missed:.2g} of the features of one"
        missing = np.full((examples - len(images), *view.shape), images.mean(), np.float32)
        return AttackReport(
            "finished", metrics, images=np.concatenate([images, missing]), seed=view.seed, unfit=unfit
        )

    def _search(self, problem: _Problem, model: _Model | None, seed: int, attacker: Attacker) -> _Found | None:
        """The best batch that the restarts found; None without any sparse direction."""
        rng, left = stream(seed, "exact_batch", "starts"), problem.factors.left
        rank = left.shape[1]
        if rank == 1:
            return problem.batch(np.ones((1, 1)), model)
        directions = certain = np.zeros((0, rank))
        best: _Found | None = None
        for restart in range(self.options.restarts):
            known = certain if len(certain) else _columns(left, directions)
            if restart == 0:
                starts = low_rank.row_starts(left, _STARTS, rng)
            else:
                # Every other time some are left out, so that a wrong one does not block the search forever.
                share = 1.0 if len(certain) else 0.5 if len(known) == rank else _KEPT if restart % 2 == 0 else 1.0
                starts = low_rank.rest_starts(known[rng.random(len(known)) < share][: rank - 1], _STARTS, rng)
            directions = np.concatenate([directions, low_rank.sparse_directions(left, starts)])
            known = np.concatenate([certain, _columns(left, directions)])
            known = known[low_rank.independent(known, rank)]
            if model is not None and 0 < rank - len(known) <= _FEW:
                directions = np.concatenate([directions, problem.predicted(known, model, rng)])
            if not len(directions):
                continue
            for _ in range(_ROUNDS):
                directions = np.concatenate([certain, _sorted(left, directions)])
                directions = directions[low_rank.independent(directions, rank)]
                found = problem.batch(directions, model)
                if best is None or found.worth >= best.worth:
                    best = found
                if model is None or found.exact.all():
                    break
                certain = np.concatenate([certain, found.columns])
                certain = certain[low_rank.independent(certain, rank)]
                # If a column is still a sum with another one, its image is right and predicts the zeros.
                more = [directions, low_rank.polished(left, found.inactive)]
                sure = certain if len(certain) else directions[found.right]
                if 0 < rank - len(sure) <= _FEW and len(sure):
                    more.append(problem.predicted(sure, model, rng))
                directions = np.concatenate(more)
            assert best is not None
            missing = 1 - float(np.count_nonzero(best.right | best.exact)) / rank
            attacker.progress(restart + 1, self.options.restarts, missing)
            if len(best.images) == rank and (not missing or (model is None and restart)):
                break
        return best


def _behind_convolutions(layout: Layout) -> tuple[str, str | None] | None:
    """Weight and bias of the first fully connected layer behind convolutions; None where there is none."""
    parameters = layout.parameters
    weight = next((parameter for parameter in parameters if len(parameter.shape) == 2), None)
    if weight is None or len(parameters[0].shape) != 4:
        return None
    biases = (p.name for p in parameters if p.layer == weight.layer and p.shape == weight.shape[:1])
    return weight.name, next(biases, None)


def _sorted(left: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Most zeros first: columns of dL/dZ are the sparsest independent directions, sparser than their sums."""
    return directions[np.argsort(-low_rank.zeros_of(left, directions).sum(1), kind="stable")]


def _columns(left: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """The independent directions, of (k, r), with too many zeros to be sums of two columns.

    If a column has a share f of zeros, a sum of two has about f^2.
    """
    if not len(directions):
        return directions
    directions = _sorted(left, directions)
    shares = low_rank.zeros_of(left, directions).mean(1)
    directions = directions[shares >= shares[0] ** _COLUMN]
    return directions[low_rank.independent(directions, left.shape[1])]


@dataclasses.dataclass(frozen=True, eq=False)
class _Model:
    """The model that the update was made from, at the layer: weight (h, d), bias (h,).

    `columns` gives the columns of dL/dZ for inputs (n, d) of the layer with each class as their label, (n, K, h), up to
    their scale; None where the update is not known to be one step on the cross entropy.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    columns: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None

    @classmethod
    def of(cls, view: View, behind: tuple[str, str | None] | None) -> _Model | None:
        """None where the adversary does not know the model."""
        if view.vector is None or view.update is None:
            return None
        layout = view.update.layout
        weight, bias = behind or (role(layout, FIRST_WEIGHT), role(layout, FIRST_BIAS))
        assert weight is not None
        matrix = parameter(view.vector, layout, weight).astype(np.float64)
        biases = parameter(view.vector, layout, bias).astype(np.float64) if bias else np.zeros(len(matrix))
        columns = None
        most = int(view.observed.meaning.examples or 1) * view.num_classes * len(matrix)
        meaning = view.observed.meaning
        single = meaning.loss == "cross_entropy" and meaning.steps == 1 and not view.segmentation
        if single and most <= _NUMBERS and view.model is not None:  # rounds that are stacked have no one model
            from fedplug_attacks._features import Front

            with contextlib.suppress(ViewError):
                columns = Front(view, weight, meaning.training_mode).columns
        return cls(matrix, biases, columns)

    def outputs(
        self, inputs: NDArray[np.float64], rows: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Outputs of some rows before the ReLU for standardised inputs (n, d), and their uncertainty.

        Unknown inputs (NaN) count as the mean of the known ones; their contribution may vary by twice the spread.
        """
        unknown = np.isnan(inputs)
        known = np.where(unknown, 0.0, inputs)
        count = np.maximum((~unknown).sum(1), 1)
        mean = known.sum(1) / count
        variance = ((known - mean[:, None]) ** 2 * ~unknown).sum(1) / count
        weight = self.weight[rows]
        outputs = np.where(unknown, mean[:, None], inputs) @ weight.T + self.bias[rows]
        spread = 2 * np.sqrt(variance[:, None] * (unknown.astype(np.float64) @ (weight**2).T))
        return outputs, spread + _ROUNDED * outputs.std(1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """The batch according to a set of directions.

    Attributes:
        images: (k, d), unclipped, NaN where no row shows a pixel.
        agreement: (k,), share of rows in which the image is inactive where its column of dL/dZ is 0, and active where
            it is not; NaN where the model is not known.
        right: bool (k,), which images are inactive in the model where their columns are 0, as far as they are known.
        exact: bool (k,), which images are certain in every pixel.
        inactive: bool (k, h), rows that they certainly leave inactive in the model; none if it is unknown.
        columns: (m, r), directions of the columns that the model gives images whose columns are certain.
    """

    images: NDArray[np.float64]
    agreement: NDArray[np.float64]
    right: NDArray[np.bool_]
    exact: NDArray[np.bool_]
    inactive: NDArray[np.bool_]
    columns: NDArray[np.float64]

    @property
    def worth(self) -> tuple[int, int, int]:
        """Ranks batches: images, those that are exact, those that seem right."""
        return len(self.images), int(self.exact.sum()), int(self.right.sum())


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """The factors of a first layer's gradient.

    Attributes:
        layer: the visible part.
        rows: bool (h,), those that the factors are of.
        pixels: bool (d,), likewise.
        factors: of the gradient of these weights, and of the bias as a last column where enough of it is visible.
        ones: (r,), right factor of the gradient of the bias; None where nothing tells it.
        scaled: what gives images their scale.
    """

    layer: FirstLayer
    rows: NDArray[np.bool_]
    pixels: NDArray[np.bool_]
    factors: low_rank.Factors
    ones: NDArray[np.float64] | None
    scaled: str

    @classmethod
    def of(cls, layer: FirstLayer, examples: int, seed: int) -> _Problem:
        """Completes the gradient, and takes its rank from its singular values, at most the number of examples.

        Raises:
            ViewError: too little is visible, or the layer has too few rows.
        """
        matrix = np.hstack([layer.weight, layer.bias[:, None]])
        visible = ~np.isnan(matrix)
        rows, columns = np.ones(len(matrix), bool), np.ones(matrix.shape[1], bool)
        least = examples + _SPARE
        while True:
            told_rows = rows & (visible[:, columns].sum(1) >= least)
            told_columns = columns & (visible[told_rows].sum(0) >= least)
            if (told_rows == rows).all() and (told_columns == columns).all():
                break
            rows, columns = told_rows, told_columns
        if min(rows.sum(), columns[:-1].sum()) < least:
            raise ViewError(
                f"{rows.sum()} rows and {columns[:-1].sum()} pixels show {least} entries or more; for {examples} "
                f"examples it takes {least} of each"
            )
        part = matrix[np.ix_(rows, columns)]
        if not np.nan_to_num(part).any():
            raise ViewError("every visible gradient of the first layer is 0")
        gaps = bool(np.isnan(part).any())
        if gaps:
            factors = low_rank.completed(part, examples, seed)
            floor = max(10 * _ROUNDING, 3 * factors.residual) * factors.singular[0]
        else:
            factors, following = low_rank.truncated(part, examples, seed)
            floor = max(_ROUNDING * factors.singular[0], 3 * following)
        rank = max(1, int(np.count_nonzero(factors.singular > floor)))
        if rank < examples:
            factors = low_rank.completed(part, rank, seed) if gaps else low_rank.truncated(part, rank, seed)[0]
        if columns[-1]:
            return cls(layer, rows, columns[:-1], factors, factors.right[:, -1], "the gradient of the bias")
        ones = _background(layer, columns[:-1], factors.right)
        told = "the range of images" if ones is None else "pixels that are black in every image"
        return cls(layer, rows, columns[:-1], factors, ones, told)

    def predicted(
        self, known: NDArray[np.float64], model: _Model, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Directions of the few missing columns, from the model's outputs for their images; (k, r).

        The missing images are in the part of the row space that is orthogonal to the known columns: up to its scale,
        which the bias gives, a single missing one is known. Images are drawn there. The rows that the model leaves most
        inactive for an image are the zeros of its column, which gives the column. Its zeros then confirm or refute it.
        """
        if self.ones is None:
            return known[:0]
        complement = low_rank.complement_of(known)
        mixing = rng.standard_normal((_DRAWN if len(complement) > 1 else 1, len(complement))) @ complement
        scales = mixing @ self.ones
        mixing = mixing[scales != 0] / scales[scales != 0, None]
        inputs = np.full((len(mixing), len(self.pixels)), np.nan)
        inputs[:, self.pixels] = mixing @ self.factors.right[:, : np.count_nonzero(self.pixels)]
        outputs = model.outputs(inputs, self.rows)[0]
        sets = []
        for share in (1, 2, 3):
            count = min(len(model.weight), self.factors.left.shape[1] + share * _SPARE * 4)
            inactive = outputs < np.minimum(np.sort(outputs, axis=1)[:, [min(count, outputs.shape[1] - 1)]], 0)
            sets.append(low_rank.polished(self.factors.left, inactive))
        return np.concatenate(sets)

    def batch(self, directions: NDArray[np.float64], model: _Model | None) -> _Found:
        """The images whose columns of dL/dZ are left @ directions; (k, r) with k at most r."""
        layer, (left, right) = self.layer, (self.factors.left, self.factors.right)
        mixing = np.linalg.pinv(directions.T)
        found, shown = mixing @ right[:, : np.count_nonzero(self.pixels)], np.flatnonzero(self.pixels)
        inputs = np.full((len(found), len(self.pixels)), np.nan)
        if self.ones is not None:
            scales = mixing @ self.ones
            inputs[:, shown] = found / np.where(scales == 0, np.nan, scales)[:, None]
        else:
            inputs[:, shown] = found
            scales = np.array([largest_scale(layer, image, self.pixels) for image in inputs])
            inputs *= scales[:, None]
        images, agreement = layer.images(inputs), np.full(len(found), np.nan)
        explained = self.factors.residual <= _EXPLAINED and len(found) == left.shape[1]
        right_ones, inactive = np.zeros(len(found), bool), np.zeros((len(found), len(left)), bool)
        exact, columns = right_ones, np.zeros((0, left.shape[1]))
        if model is not None:
            zeros, sure = low_rank.zeros_of(left, directions), low_rank.zeros_of(left, directions, sure=True)
            outputs, spread = model.outputs(inputs, self.rows)
            active = outputs > 0
            agreement = (active != zeros).mean(1)
            # The hidden part of an image, and rounding, can flip a row whose output is close to 0.
            decided = np.abs(outputs) > spread
            inactive = decided & ~active
            counted, wrong = (decided & sure).sum(1), (decided & sure & active).sum(1)
            right_ones = (counted >= left.shape[1] + _SPARE) & (wrong <= (1 - _INACTIVE) * counted)
            right_ones &= (decided & (active == zeros)).sum(1) <= (1 - _AGREEING) * decided.sum(1)
            right_ones &= np.bool_(explained)
            if layer.standardised is None:
                right_ones &= (np.nan_to_num(images).min(1) > -_OUTSIDE) & (np.nan_to_num(images).max(1) < 1 + _OUTSIDE)
            if model.columns is None:
                # Columns that differ in few rows have mixtures that seem right. Another image then does not.
                exact = right_ones & right_ones.all()
            else:
                known = np.nan_to_num(inputs)
                told, certain = self._confirmed(known, self._moved(known), decided, model.columns)
                # With two classes a column does not tell small errors. If all of them are known, none is a mixture.
                same = np.abs((told * directions).sum(1)) > 1 - _TOLD**2
                exact = right_ones & (certain | (right_ones & same).all())
                columns = told[told.any(1)]
            exact = exact & ~np.isnan(images).any(1)
        return _Found(images, agreement, right_ones, exact, inactive, columns)

    def _moved(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inputs (k, d), each moved toward the mean of the others, a single one toward 0, until its image is off by
        `_TOLD`."""
        others = (inputs.sum(0) - inputs) / max(1, len(inputs) - 1)
        units = np.sqrt(np.mean(((others - inputs) * self.layer.scale) ** 2, axis=1, keepdims=True))
        moved: NDArray[np.float64] = inputs + (others - inputs) * _TOLD / np.where(units > 0, units, 1.0)
        return moved

    def _confirmed(
        self, inputs: NDArray[np.float64], moved: NDArray[np.float64], decided: NDArray[np.bool_],
        columns: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:  # fmt: skip
        """Unit vectors q (k, r) for which left @ q are the columns that the model gives inputs (k, d) with some label.

        They are 0 where no label gives a column in the column space of the gradient: a wrong image has other zeros, and
        one that is nearly right another size of each entry. Also bool (k,), for which of them this would show in the
        moved inputs (k, d).
        """
        told, off_by = (columns(each)[:, :, self.rows] for each in (inputs, moved))
        found, certain = np.zeros((len(inputs), self.factors.left.shape[1])), np.zeros(len(inputs), bool)
        for number, (each, near, rows) in enumerate(zip(told, off_by, decided, strict=True)):
            left, wanted, shifted = self.factors.left[rows], each[:, rows].T, near[:, rows].T
            if len(left) < found.shape[1] + _SPARE or not wanted.any():
                continue
            size = np.maximum(np.linalg.norm(wanted, axis=0), 1e-300)
            off = left @ np.linalg.lstsq(left, wanted, rcond=None)[0] - wanted
            label = int((np.linalg.norm(off, axis=0) / size).argmin())
            both = np.stack([wanted[:, label], shifted[:, label]], axis=1)
            # A completion may leave single rows wrong.
            for _ in range(int((1 - _AGREEING) * len(left)) + 1):
                within = np.linalg.lstsq(left, both, rcond=None)[0]
                off = np.abs(left @ within - both)
                outside, of_moved = np.linalg.norm(off, axis=0)
                if outside <= _OUTSIDE_SPAN * size[label]:
                    found[number], certain[number] = within[:, 0], of_moved >= math.sqrt(2) * outside
                    break
                left, both = np.delete(left, off[:, 0].argmax(), 0), np.delete(both, off[:, 0].argmax(), 0)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        found /= np.where(lengths > 0, lengths, 1.0)
        return found, certain


def _background(
    layer: FirstLayer, pixels: NDArray[np.bool_], right: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The right factor of the bias's gradient from pixels that are black in every image; None if there are too few.

    The column of such a pixel is (0 - mean) / std times that of the bias, so that all of them have one direction.
    """
    zero = (-layer.zero / layer.scale)[pixels]
    sizes = np.linalg.norm(right, axis=0)
    usable = np.flatnonzero((sizes > 1e-6 * sizes.max()) & (zero != 0))
    if layer.standardised is not None or not len(usable):
        return None
    columns = right[:, usable] / zero[usable]
    scaled = columns / np.linalg.norm(columns, axis=0)
    alike = (scaled.T @ scaled > 1 - 1e-7) & (
        np.abs(np.log(np.linalg.norm(columns, axis=0)[:, None] / np.linalg.norm(columns, axis=0))) < 1e-3
    )
    most = int(np.argmax(alike.sum(1)))
    if alike[most].sum() < max(3, _BACKGROUND * len(pixels)):
        return None
    ones: NDArray[np.float64] = columns[:, alike[most]].mean(1)
    return ones


def _unfit(problem: _Problem, found: _Found) -> str:
    """Why not all images that the gradient holds are exact; empty if they are."""
    rank, exact = problem.factors.left.shape[1], int(np.count_nonzero(found.exact))
    if exact == rank:
        return ""
    if problem.factors.residual > _EXPLAINED:
        return (
            f"factors of rank {rank} leave {problem.factors.residual:.1e} of the visible entries: noise, weight decay, "
            "more examples, or too much is hidden"
        )
    if len(found.images) < rank:
        return f"{len(found.images)} of {rank} sparse directions were found: no ReLU, or too few restarts"
    if np.isnan(found.agreement).all():
        return "the model is unknown, so no test shows which images are exact"
    return (
        f"{exact} of {rank} images have the gradient that the model gives them; the others may be mixtures, or local "
        f"steps moved what is active (scale by {problem.scaled})"
    )
