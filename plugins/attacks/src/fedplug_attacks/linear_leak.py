"""Inputs of a first fully connected layer: the gradient of a weight over that of its bias."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Field, Finds
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import Formed
from fedplug_attacks._public import layer_of
from fedplug_attacks.api.needs import FIRST_BIAS, FIRST_WEIGHT, role, takes_inputs

if TYPE_CHECKING:
    from fedplug.api.data import PublicData
    from numpy.typing import NDArray

    from fedplug_attacks._priors import GaussianPrior


@dataclasses.dataclass(frozen=True, eq=False)
class FirstLayer:
    """Gradient of the first layer; h rows, d inputs. NaN where hidden; an input of 0 is `zero` in [0, 1].

    `noise_weight` and `noise_bias` are the standard deviations of the noise on each, stated or as they show.

    The columns of a table have no range: there images are standardised rows, and `standardised` holds the mean and
    spread.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    scale: NDArray[np.float64]
    zero: NDArray[np.float64]
    noise_weight: NDArray[np.float64]
    noise_bias: NDArray[np.float64]
    standardised: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def images(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardised inputs (..., d) as images, unclipped."""
        images: NDArray[np.float64] = inputs * self.scale + self.zero
        return images

    def finished(
        self, images: NDArray[np.float64], examples: int, public: PublicData | None, shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Exactly this many examples (n, *shape) in [0, 1], or rows of a table in the units of its columns.

        Args:
            images: (k, d), NaN where not known: gaps and missing images are the public mean, or the mean of what is
                known; those of a table the mean of their columns.
            examples: n, at least k.
            public: the public facts.
            shape: of an example.
        """
        shown = images[~np.isnan(images)]
        fill = np.full(images.shape[1], shown.mean() if shown.size else 0.5)
        if self.standardised is not None:
            fill = np.zeros(images.shape[1])
        elif public is not None:
            fill = in_range(public.examples.inputs).mean(0).reshape(-1)
        missing = np.tile(fill, (examples - len(images), 1))
        complete = np.concatenate([np.where(np.isnan(images), fill, images), missing])
        if self.standardised is None:
            complete = complete.clip(0, 1)
        else:
            std, mean = self.standardised
            complete = std * complete + mean
        return complete.astype(np.float32).reshape(examples, *shape)

    @property
    def noise(self) -> float:
        """The share of noise in the energy of the visible weights."""
        energy = float(np.nansum(self.weight**2))
        return float((self.noise_weight[~np.isnan(self.weight)] ** 2).sum() / energy) if energy else 0.0


def first_layer(view: View, naive: bool, behind: tuple[str, str | None] | None = None) -> FirstLayer:
    """The first layer's gradient as the adversary sees it.

    Args:
        view: with an update.
        naive: hidden entries are 0; else NaN.
        behind: weight and bias of a layer behind others; its inputs are features, which have no range.

    Raises:
        ViewError: the first layer does not take the input itself.
    """
    update, size = view.observed, int(np.prod(view.shape))
    name, bias = behind or (role(update.layout, FIRST_WEIGHT), role(update.layout, FIRST_BIAS))
    if name is None or not (behind or takes_inputs(update.layout, view.shape)):
        raise ViewError(
            f"the first layer is not fully connected with an input for each of the {size} values of an image"
        )
    if bias is None and naive:
        raise ViewError("the first layer has no bias, and the naive form divides by its gradient")
    # Signs and learning rates cancel in a quotient, so the update need not become a gradient.
    rows, biases, noise, noise_bias = layer_of(update, name, bias, 0.0 if naive else np.nan)
    if behind is None and len(view.shape) > 1:
        zero, scale = standardised_by(view, size)
        return FirstLayer(rows, biases, scale, zero, noise, noise_bias)
    ones, zeros = np.ones(rows.shape[1]), np.zeros(rows.shape[1])
    columns = ones, zeros
    if behind is None:
        columns = np.asarray(view.std or ones, np.float64), np.asarray(view.mean or zeros, np.float64)
    return FirstLayer(rows, biases, ones, zeros, noise, noise_bias, columns)


def standardised_by(view: View, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation (d,) by which each of the d values of an image is standardised."""
    channels = len(view.mean) or 1  # without any, inputs are the pixels themselves
    each = view.mean or (0.0,), view.std or (1.0,)
    mean, std = (np.repeat(np.asarray(given, np.float64), size // channels) for given in each)
    return mean, std


def largest_scale(layer: FirstLayer, inputs: NDArray[np.float64], shown: NDArray[np.bool_]) -> float:
    """The factor, of either sign, of largest size with which the inputs stay images in [0, 1]."""
    steps, zero = (inputs * layer.scale)[shown], layer.zero[shown]
    steps, zero = steps[steps != 0], zero[steps != 0]
    if not steps.size:
        return 1.0
    up, down = ((1 - zero) / np.abs(steps), zero / np.abs(steps))
    positive = float(np.where(steps > 0, up, down).min())
    negative = float(np.where(steps > 0, down, up).min())
    return positive if positive >= negative else -negative


def in_range(inputs: NDArray[np.generic]) -> NDArray[np.float64]:
    """Stored inputs in [0, 1]."""
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    return inputs.astype(np.float64) / scale


# Alternating least squares for rows without a bias: converges in a few steps, since the data has rank 1 except for
# noise.
_STEPS = 50
# Steps of the search for the direction that the rows share, and its end.
_TURNS, _TURNED = 200, 1e-13
# A signal must exceed the largest singular value of noise by this many times the scale of its variation, squared.
_BEYOND = 2.0
# Largest standardised input that a direction with noise may start from, and standard deviations of its noise by which
# a bias must differ from 0 to give the scale.
_FARTHEST, _SURE = 3.0, 5.0
# Squared biases of a group, relative to those of their noise, below which such a group can occur by chance.
_CHANCE = 10.0
# The iteration has converged if no standardised input moves by more than this.
_STILL = 1e-5
# The share of noise in the weights from which on a prior is useful, the same for a prior without public examples, and
# the largest square of a standardised input.
_QUIET, _NOISY, _LARGE = 1e-4, 0.1, 9.0
# Values outside [0, 1] by more than this are mixtures of examples, not one.
_OUTSIDE = 1e-2


class LinearLeak(Formed):
    """The inputs of a first fully connected layer, read off its gradient (Phong et al. 2018; Geiping et al. 2020).

    Row i of the gradient is G_W[i] = sum_n g_n[i] x_n' and G_b[i] = sum_n g_n[i]. With one example every row is G_b[i]
    times the input, so the input is their quotient, exactly and after any number of local steps. With more examples, a
    row that a single example activates still gives that example. Rows that agree count as such, and come first.

    Adaptive, one example: each pixel is the least-squares fit over all rows of which it and the bias are visible. A row
    with a hidden bias is used too, because the pixels that other rows show give its bias. If no bias is visible, the
    gradient still has the input's direction. The scale is then the largest that stays within the range of images, which
    is right if both ends of that range occur. Rows of a table have no such range. More examples: rows are compared
    where both are visible. Pixels that no row shows are filled with the public mean image, or else with the mean of the
    others, and counted in `hidden_pixels`. Naive: hidden entries are treated as 0, and the row with the largest bias is
    used for a single example.

    With noise, the quotient has the noise of its entries, amplified where biases are small. Adaptive, with a prior x ~
    N(mu, Sigma) of images (`prior`), the image of one example is the expected one given all entries: of rows G_W[i] =
    g[i] x' + noise of standard deviations s, with g[i] ~ N(0, t). Given g, x is normal with the precision Sigma^-1 +
    diag(a) and the mean (Sigma^-1 + diag(a))^-1 (Sigma^-1 mu + f), a_j = sum_i E[g_i^2] / s_ij^2 and f_j = sum_i E[g_i]
    G_W[i, j] / s_ij^2; given x, g[i] is normal, too. Alternating both is variational Bayes, with a fitted t; the most
    probable pair of x and g would fit noise (Bishop 2006, Sec. 12.2). It starts at the direction that explains most of
    all rows; `alignment` is the expected cosine between that and the true one. If noise alone would explain as much, x
    is mu. With more examples, each image from the rows is shrunk toward mu in the same way, by the share of noise in
    its biases.
    """

    finds = Finds(
        needs=Needs(
            model=False, tensors=((FIRST_WEIGHT, "any"),), batch_size=(1, 256), loss=None, classification=False
        ),
        what=frozenset({"images"}), headline=("mse", "low"), success=("mse", "<=", 1e-3),
    )  # fmt: skip

    class Options(Formed.Options):
        """How hidden entries are treated, and which rows count as the same image."""

        tolerance: float = Field(
            0.01,
            gt=0,
            description="rows whose images differ by less than this (root mean square, in [0, 1]; for a table in "
            "spreads of its columns) show the same one",
        )

        prior: Literal["auto", "gaussian", "none"] = Field(
            "auto",
            description="gaussian: the most probable image from noisy entries, given the public examples or else a "
            "spectrum of photographs (adaptive form); none: no prior; auto: gaussian if there are public examples, or "
            "if noise is more than a tenth of the observation",
        )

    def describe(self) -> str:
        """A line for the plan."""
        return f"inputs of a first fully connected layer ({self.options.form})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Reads the images off; not applicable where the first layer does not take the image itself."""
        layer = first_layer(view, naive=self.options.form == "naive")
        if np.isinf(layer.weight).any() or np.isinf(layer.bias).any():
            return AttackReport("diverged", reason="the first layer's gradient holds values that are not finite")
        if self.options.form == "naive" and not layer.bias.any():
            return AttackReport("diverged", reason="every bias gradient it uses is 0, and 0/0 is not an image")
        if not np.nan_to_num(layer.weight).any():
            raise ViewError("every visible weight gradient of the first layer is 0")
        examples = int(view.observed.meaning.examples or 1)
        metrics: dict[str, float] = {}
        if layer.standardised is not None and not np.nan_to_num(layer.bias).any():
            raise ViewError(
                "no bias of the first layer is visible and not 0, and columns of a table have no range to scale by"
            )
        prior = self._prior(layer, view, attacker)
        if prior is not None and examples == 1:
            inputs, metrics["alignment"] = _likely(layer, prior, view.seed)
            images = layer.images(inputs)[None]
        elif examples == 1 and self.options.form == "naive":
            row = int(np.argmax(np.abs(layer.bias)))
            images = layer.images(layer.weight[row] / layer.bias[row])[None]
        elif examples == 1:
            images = _single(layer)[None]
        elif not np.nan_to_num(layer.bias).any():
            raise ViewError(
                f"no bias of the first layer is visible and not 0, and {examples} examples have no common direction"
            )
        else:
            images, agreeing = _distinct(layer, examples, self.options.tolerance, prior)
            metrics["agreeing_rows"] = float(agreeing)
        metrics["hidden_pixels"] = float(np.isnan(images).sum(1).mean())
        attacker.progress(1, 1, None)
        found = layer.finished(images, examples, attacker.facts.public, view.shape)
        return AttackReport("finished", metrics, images=found, seed=view.seed)

    def _prior(self, layer: FirstLayer, view: View, attacker: Attacker) -> GaussianPrior | None:
        """The prior of images, if there is enough noise for one to matter."""
        noise = layer.noise
        if self.options.prior == "none" or self.options.form == "naive" or noise < _QUIET:
            return None
        if self.options.prior == "auto" and attacker.facts.public is None and noise <= _NOISY:
            return None
        from fedplug_attacks._priors import gaussian

        return gaussian(view, attacker.facts.public)


def _single(layer: FirstLayer) -> NDArray[np.float64]:
    """The image behind a gradient of rank 1, NaN where no row shows a pixel; (d,)."""
    visible, weight = ~np.isnan(layer.weight), np.nan_to_num(layer.weight)
    known = ~np.isnan(layer.bias)
    factors = np.nan_to_num(layer.bias)
    told = bool(factors.any())
    if not told:
        # Any row will do as a start: all are multiples of the same input.
        factors = weight @ weight[int(np.argmax((weight**2).sum(1)))]
    inputs = _fitted(weight.T, visible.T, factors)
    if not known.all():
        for _ in range(_STEPS):
            factors = np.where(known, factors, _fitted(weight, visible, inputs))
            inputs = _fitted(weight.T, visible.T, factors)
    shown = (visible & (factors != 0)[:, None]).any(0)
    if not told:
        inputs = inputs * largest_scale(layer, inputs, shown)
    return np.where(shown, layer.images(inputs), np.nan)


def _likely(layer: FirstLayer, prior: GaussianPrior, seed: int) -> tuple[NDArray[np.float64], float]:
    """The expected standardised input behind one example's rows with noise, (d,), and its direction's alignment.

    The alignment is the expected cosine between the direction of (x, 1) that explains most of the gradient, entries
    weighted by their noise, and the true one. It is 0 if noise alone would look the same; the input is then the mean.
    """
    import torch

    # A clear entry among noisy ones is off by rounding.
    least = 1e-6 * np.sqrt(np.nanmean(layer.weight**2))
    whole = np.hstack([layer.weight, layer.bias[:, None]])
    noise = np.hstack([layer.noise_weight, layer.noise_bias[:, None]])
    precise = ~np.isnan(whole) / np.maximum(noise, least) ** 2
    weighed, mean = precise * np.nan_to_num(whole), prior.mean.numpy().reshape(-1)
    starts = (np.append(mean, 1.0), weighed.T @ np.nan_to_num(layer.bias), weighed.T @ weighed.sum(1))
    direction, explained = max((_direction(weighed, precise, start) for start in starts), key=lambda found: found[1])
    # Where entries are hidden, noise is largest along the fullest row and column.
    alignment = _alignment(explained, int((precise > 0).sum(0).max()), int((precise > 0).sum(1).max()))
    # The bias gives the scale of (x, 1); where noise hides it, the most likely image does.
    told, likely = precise.T @ _quotients(weighed @ direction, precise @ direction**2) ** 2, np.append(mean, 1.0)
    scale = float(direction[-1])
    if abs(scale) * np.sqrt(told[-1]) < _SURE:
        scale = float((told * direction) @ likely / (told @ likely**2)) if alignment else 0.0
    inputs = (direction[:-1] / (scale or 1.0)).clip(-_FARTHEST, _FARTHEST)
    width = _width(precise @ np.append(inputs, 1.0) ** 2, weighed @ np.append(inputs, 1.0)) if alignment else 0.0
    if not width:
        return mean, alignment
    rng = torch.Generator().manual_seed(seed % 2**63)
    spread = np.zeros(len(mean) + 1)
    for _ in range(_STEPS):
        # Mean and mean square of each row's factor g, given the current estimate of the input.
        known = np.append(inputs, 1.0)
        variance = 1 / (precise @ (known**2 + spread) + 1 / width)
        factors = weighed @ known * variance
        energy = factors**2 + variance
        precision, force = (
            torch.from_numpy(part[:-1]).reshape(prior.shape) for part in (energy @ precise, factors @ weighed)
        )
        found, variances = prior.posterior(precision, force, rng)
        before, inputs, width = inputs, found.numpy().reshape(-1), float(energy.mean())
        spread[:-1] = variances.numpy().reshape(-1)
        if np.abs(inputs - before).max() < _STILL:
            break
    return inputs, alignment


def _direction(
    weighed: NDArray[np.float64], precise: NDArray[np.float64], start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The unit vector (d + 1,) that explains most of the gradient, by alternating least squares, and that energy."""
    found = start / (float(np.linalg.norm(start)) or 1.0)
    for _ in range(_TURNS):
        factors = _quotients(weighed @ found, precise @ found**2)
        moved = _quotients(weighed.T @ factors, precise.T @ factors**2)
        before, found = found, moved / (float(np.linalg.norm(moved)) or 1.0)
        if abs(float(found @ before)) > 1 - _TURNED:
            break
    return found, float((weighed @ found) @ _quotients(weighed @ found, precise @ found**2))


def _alignment(explained: float, rows: int, columns: int) -> float:
    """Cosine between the first right singular vector of signal and noise and that of the signal, 0 to 1.

    With noise of variance 1 the largest squared singular value y^2 is (t^2 + n)(t^2 + m) / t^2 for a signal t above (n
    m)^(1/4), and the squared cosine is (t^4 - n m) / (t^4 + m t^2) (Benaych-Georges & Nadakuditi 2012, Sec. 3.1);
    below, noise alone gives as much. The contribution of chance to y^2 is subtracted (Johnstone 2001, Theorem 1.1).
    """
    sides = np.sqrt([rows, columns])
    rest = explained - rows - columns - _BEYOND * float(sides.sum() * (1 / sides).sum() ** (1 / 3))
    if rest <= 2 * np.sqrt(rows * columns):
        return 0.0
    signal = (rest + np.sqrt(rest**2 - 4 * rows * columns)) / 2
    return float(np.sqrt(max(signal**2 - rows * columns, 0.0) / (signal**2 + columns * signal)))


def _width(told: NDArray[np.float64], sums: NDArray[np.float64]) -> float:
    """The variance of the rows' factors given an input; 0 where it could be noise alone (two standard deviations)."""
    rows = told > 0
    if not rows.any():
        return 0.0
    excess = (sums[rows] ** 2 - told[rows]).sum()
    # Under noise alone a sum has the variance `told`, so that its square varies by twice the square of that.
    if excess < 2 * np.sqrt(2 * (told[rows] ** 2).sum()):
        return 0.0
    return float(excess / (told[rows] ** 2).sum())


def _fitted(
    values: NDArray[np.float64], visible: NDArray[np.bool_], factors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For each row r the least-squares a with values[r] = a factors over its visible entries; 0 without any."""
    return _quotients(values @ factors, visible @ factors**2)


def _quotients(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entry by entry; 0 where the lower one is not positive."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _distinct(
    layer: FirstLayer, count: int, tolerance: float, prior: GaussianPrior | None
) -> tuple[NDArray[np.float64], int]:
    """Up to `count` images that rows show, those that most rows agree on first, and how many rows agree with another.

    Rows are grouped greedily: a row joins the first row it agrees with where both are visible. With a prior each image
    is shrunk toward its mean.
    """
    usable = np.flatnonzero(np.abs(np.nan_to_num(layer.bias)) > 1e-6 * np.nanmax(np.abs(layer.bias)))
    images = layer.images(layer.weight[usable] / layer.bias[usable, None])
    visible, values = (~np.isnan(images)).astype(np.float64), np.nan_to_num(images)
    squares = (values**2) @ visible.T
    common = visible @ visible.T
    distances = np.maximum(squares + squares.T - 2 * values @ values.T, 0.0) / np.maximum(common, 1.0)
    same = (distances < tolerance**2) & (common > 0.1 * values.shape[1])
    np.fill_diagonal(same, True)
    outside = np.maximum(-values, values - 1).clip(min=0).max(1)
    if layer.standardised is not None:
        outside = np.zeros(len(values))
    inside = outside <= _OUTSIDE
    # Means of several images have less contrast than one.
    contrast = np.nan_to_num(np.nanvar(images, axis=1))
    order = np.lexsort((-contrast, -(same & inside).sum(1), np.where(inside, 0.0, outside)))
    taken = np.zeros(len(usable), bool)
    found: list[NDArray[np.float64]] = []
    for row in order:
        if len(found) == count:
            break
        if not taken[row]:
            group = same[row] & ~taken
            taken |= group
            image = _group_image(layer, usable[group], images[group])
            found.append(image if prior is None else _drawn(layer, prior, usable[group], image))
    agreeing = int(np.count_nonzero((same & inside).sum(1)[inside] > 1))
    return np.array(found), agreeing


def _group_image(layer: FirstLayer, rows: NDArray[np.int64], images: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of images of the same example, weighted by their squared biases; NaN where none is visible."""
    weights = ~np.isnan(images) * layer.bias[rows, None] ** 2
    total = weights.sum(0)
    mean: NDArray[np.float64] = (np.nan_to_num(images) * weights).sum(0) / np.where(total > 0, total, np.nan)
    return mean


def _drawn(
    layer: FirstLayer, prior: GaussianPrior, rows: NDArray[np.int64], image: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean image given a group's rows, each the image times its bias, and the noise on both; (d,)."""
    import torch

    noise = layer.noise_bias[rows] ** 2
    energy = float((layer.bias[rows] ** 2 - noise).sum())
    if energy < _CHANCE * float(np.sqrt((noise**2).sum())):
        return layer.images(prior.mean.numpy().reshape(-1))
    inputs = (np.nan_to_num(image) - layer.zero) / layer.scale
    # The noise of the bias adds to that of each entry, as the bias is what the entry is divided by.
    variance = (layer.noise_weight[rows] ** 2).mean(0) + noise.mean() * np.minimum(inputs**2, _LARGE)
    # A result that is not an image is a mixture of several, or has unexpected noise, and gets less weight.
    outside = np.nan_to_num(np.maximum(-image, image - 1)).clip(min=0) / layer.scale
    variance = variance + energy * (outside**2).max()
    precision = ~np.isnan(image) * energy / np.maximum(variance, 1e-12 * energy)
    told, force = (torch.from_numpy(part).reshape(prior.shape) for part in (precision, precision * inputs))
    return layer.images(prior.posterior(told, force)[0].numpy().reshape(-1))
