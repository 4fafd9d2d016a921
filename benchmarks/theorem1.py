"""ParaAegis' Theorem 1 compared with training, on digits: the terms of its bound, computed along the runs.

    python benchmarks/theorem1.py [--seeds 1 2 3] [--json] [--norms]

The protocol of `recipes/paraaegis-static.yaml` (10 clients, 10 rounds) runs unchanged; an extension keeps each client's
start, update, gradient and plan. Eq. 2 itself did not survive in our copy of the paper. The bound here follows from the
steps of its proof (App. A.3): smoothness, then the mean update apart from its clipping and noise. With g = grad f at
the round's start, u_k a client's update, a_k = min(1, C / |u_k of the noised zone|), s the weighted mean of the clipped
updates, b the part that clipping removes, w_k the weights, d_DP = (1 - p) d, and eta = lr * mean local steps:

    mean |g|^2 <= (f_0 - f_T) / (eta T) + mean [ G (|drift| + |b|) + L/2 |s|^2 + L/2 d_DP C^2 sigma^2 sum w_k^2 ] / eta

drift is the mean update plus eta g, G the largest |g|, L the largest curvature met: a power iteration at each round's
start, so that a true Lipschitz constant is no smaller. The noise term is printed twice: with sigma of Remark 1, and
with the sigma that gives epsilon for a clipped update (docs/papers/paraaegis.md). `rise` is the effect of the same
noise on the training loss in a round, measured with 20 draws, next to the bound L/2 d_DP C^2 sigma^2 sum w_k^2.

With --norms it prints for each row what Sec. 5 says of the vote: the L2 norm of the part that gets noise, in % of the
whole update's, mean over clients and rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, at_client, hookimpl

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "paraaegis-static.yaml"
ROUNDS, NORM, DELTA, DRAWS = 10, 0.01, 1e-5, 20
ROWS: dict[str, dict[str, Any]] = {
    "largest 5%": {"negotiate_mask.ratio": 0.05},
    "largest 20%": {"negotiate_mask.ratio": 0.2},
    "largest 50%": {"negotiate_mask.ratio": 0.5},
    "random 20%": {"negotiate_mask.ratio": 0.2, "score_parameters.0.strategy": "random"},
    "largest 20%, epsilon 1": {"negotiate_mask.ratio": 0.2, "protect.noised.1.epsilon": 1},
    "largest 20%, norm 0.1": {"negotiate_mask.ratio": 0.2, "protect.noised.0.norm": 0.1},
}


class Seen(fedplug.Extension):
    """Keep the quantities of the theorem: two files per client and round."""

    class Options(fedplug.Options):
        folder: str = Field(description="where the files go")

    def __init__(self, options: Options) -> None:
        self.options: Seen.Options = options

    @hookimpl(wrapper=True)
    def score_parameters(self, client: Client, facts: Facts) -> Any:
        """The state after training."""
        from fedplug_std.per_sample import mean_gradient

        train, data = client.data.train, client.data
        assert client.update is not None
        np.savez(
            self._file("seen", client, facts), start=client.start, whole=client.update,
            gradient=mean_gradient(client.model, train, data, vector=client.start),
            inputs=train.inputs, labels=train.labels, scale=[data.mean, data.std],
        )  # fmt: skip
        return (yield)

    @hookimpl(wrapper=True)
    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> Any:
        """The clients keep the plan that they agree on."""
        result = yield
        cohort.tell(self.keep)
        return result

    @at_client
    def keep(self, client: Client) -> None:
        """The positions of this client's zone with noise."""
        assert client.plan is not None
        np.savez(self._file("plan", client, client.facts), places=client.plan.positions("noised"))

    def _file(self, what: str, client: Client, facts: Facts) -> Path:
        return Path(self.options.folder) / f"{facts.round}-{client.client_id}-{what}.npz"


def measure(changes: dict[str, Any], seed: int, norms: bool = False) -> dict[str, float]:
    """One run: the terms of the bound, means over its rounds, and the measurements; or the norms alone."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept"
        kept.mkdir()
        run = fedplug.run(
            RECIPE,
            {**changes, "extensions": [{"use": "theorem1.Seen", "folder": str(kept)}]},
            seed=seed, rounds=ROUNDS, engine="local", output=folder, quiet=True, plugins=[__file__],
        )  # fmt: skip
        accuracy = run.metrics[-1].accuracy
        recipe, module = run.recipe, run.model
        rounds = [
            [
                dict(np.load(file)) | dict(np.load(kept / file.name.replace("seen", "plan")))
                for k in range(recipe.clients) if (file := kept / f"{t}-{k}-seen.npz").is_file()
            ]
            for t in range(ROUNDS)
        ]  # fmt: skip
    found = norm_left(rounds) if norms else terms(rounds, recipe, module, seed)
    return {"accuracy": accuracy or math.nan} | found


def norm_left(rounds: list[list[dict[str, Any]]]) -> dict[str, float]:
    """The L2 norm of the part that gets noise, in % of the whole update's, from the clients' records."""
    parts = [
        float(np.linalg.norm(one["whole"][one["places"]]) / np.linalg.norm(one["whole"]))
        for clients in rounds for one in clients
    ]  # fmt: skip
    return {"norm of the noised part, % of the update": 100 * statistics.fmean(parts)}


def terms(rounds: list[list[dict[str, Any]]], recipe: Any, module: Any, seed: int) -> dict[str, float]:
    """The terms of the bound from the clients' records."""
    clip, noise = (use.options for use in recipe.protect["noised"])
    sigma = noise.multiplier(0, ROUNDS)
    counts = [len(one["labels"]) for one in rounds[0]]
    train = recipe.train.options
    eta = train.lr * train.epochs * statistics.fmean(math.ceil(n / train.batch_size) for n in counts)
    loss = Loss(module, rounds[0])
    found: list[dict[str, float]] = []
    for number, clients in enumerate(rounds):
        weights = np.array([len(one["labels"]) for one in clients], np.float64)
        weights /= weights.sum()
        gradient = sum(w * one["gradient"].astype(np.float64) for w, one in zip(weights, clients, strict=True))
        whole, clipped = np.zeros_like(gradient), np.zeros_like(gradient)
        for weight, one in zip(weights, clients, strict=True):
            update = one["whole"].astype(np.float64)
            kept = update.copy()
            kept[one["places"]] *= min(1.0, clip.norm / np.linalg.norm(update[one["places"]]))
            whole, clipped = whole + weight * update, clipped + weight * kept
        start, places = clients[0]["start"], clients[0]["places"]
        draws, rise = np.random.default_rng([seed, number]), []
        std = clip.norm * sigma * math.sqrt(float(np.square(weights).sum()))
        moved = (start + clipped).astype(np.float32)
        still = loss.at(moved)
        for _ in range(DRAWS):
            noised = moved.copy()
            noised[places] += draws.normal(0, std, len(places)).astype(np.float32)
            rise.append(loss.at(noised) - still)
        # Remark 1: s sqrt(2 q T ln(1/delta)) / epsilon with s = 2C / |D_k|, the smallest client's being the largest.
        remark = 2 * clip.norm / min(counts) * math.sqrt(2 * ROUNDS * math.log(1 / DELTA)) / noise.epsilon
        found.append({
            "loss": loss.at(start), "gradient": float(np.linalg.norm(gradient)),
            "drift": float(np.linalg.norm(whole + eta * gradient)), "bias": float(np.linalg.norm(whole - clipped)),
            "step": float(np.square(clipped).sum()), "curvature": loss.curvature(start, seed),
            "noise": len(places) * std**2, "noise printed": len(places) * (std * remark / (clip.norm * sigma)) ** 2,
            "rise": statistics.fmean(rise), "last": still,
        })  # fmt: skip
    steepest, curvature = (max(one[key] for one in found) for key in ("gradient", "curvature"))

    def mean(key: str) -> float:
        return statistics.fmean(one[key] for one in found)

    bound = {
        "start": (found[0]["loss"] - found[-1]["last"]) / (eta * ROUNDS),
        "drift": steepest * mean("drift") / eta,
        "clipping": steepest * mean("bias") / eta,
        "step": curvature / 2 * mean("step") / eta,
        "noise": curvature / 2 * mean("noise") / eta,
    }
    return {
        "mean |g|^2": statistics.fmean(one["gradient"] ** 2 for one in found),
        "bound": sum(bound.values()), **bound,
        "noise, Remark 1": curvature / 2 * mean("noise printed") / eta,
        "rise": mean("rise"), "rise allowed": curvature / 2 * mean("noise"), "L": curvature,
    }  # fmt: skip


class Loss:
    """The mean cross entropy over all clients' examples, as a function of the parameters."""

    def __init__(self, module: Any, clients: list[dict[str, Any]]) -> None:
        import torch
        from fedplug_std.torch_model import to_tensor

        mean, std = clients[0]["scale"]
        self.module = module
        self.inputs = to_tensor(np.concatenate([one["inputs"] for one in clients]), mean, std)
        self.labels = torch.from_numpy(np.concatenate([one["labels"] for one in clients]))

    def _value(self, vector: Any) -> Any:
        import torch
        from torch.func import functional_call

        parameters, at = {}, 0
        for name, parameter in self.module.named_parameters():
            parameters[name] = vector[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        return torch.nn.functional.cross_entropy(functional_call(self.module, parameters, (self.inputs,)), self.labels)

    def at(self, vector: Any) -> float:
        """The loss there, in nats."""
        import torch

        with torch.no_grad():
            return float(self._value(torch.from_numpy(np.asarray(vector, np.float32))))

    def curvature(self, vector: Any, seed: int, steps: int = 15) -> float:
        """The largest absolute eigenvalue of the Hessian there, by power iteration."""
        import torch

        at = torch.from_numpy(np.asarray(vector, np.float32)).requires_grad_()
        (gradient,) = torch.autograd.grad(self._value(at), at, create_graph=True)
        direction = torch.randn(len(at), generator=torch.Generator().manual_seed(seed))
        value = 0.0
        for _ in range(steps):
            direction = direction / direction.norm()
            (product,) = torch.autograd.grad(gradient, at, direction, retain_graph=True)
            value, direction = float(product.norm()), product
        return value


def main() -> None:
    """Measures every row with every seed, and prints means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--json", action="store_true", help="print every run as a line of JSON instead")
    parser.add_argument("--norms", action="store_true", help="print the norm of the noised part, and no bound")
    chosen = parser.parse_args()
    columns: list[str] = []
    for name, changes in ROWS.items():
        runs = [measure(changes, seed, chosen.norms) for seed in chosen.seeds]
        if chosen.json:
            print("\n".join(json.dumps({"row": name, "seed": s} | r) for s, r in zip(chosen.seeds, runs, strict=True)))
            continue
        if not columns:
            columns = [*runs[0]]
            print("| row |", " | ".join(columns), "|\n|", " | ".join(["---"] * (len(columns) + 1)), "|")
        means = [f"{statistics.fmean(run[key] for run in runs):.3g}" for key in columns]
        print(f"| {name} |", " | ".join(means), "|", flush=True)


if __name__ == "__main__":
    main()
