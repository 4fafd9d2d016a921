"""Draws the pictures of docs/pictures from the numbers in docs/numbers. A test says which are stale.

    python docs/draw.py
    python docs/draw.py --comparison runs/compare-encrypt-or-noise
    python docs/draw.py --sweep runs/sweep-fisher-fisher.grid selectiveshield-tables-8-and-9

The second writes the numbers of a comparison to docs/numbers first: that of
`recipes/comparisons/encrypt-or-noise.yaml` for the README's picture, that of `who-sees-what.yaml` for docs/choosing.md.
Where several adversaries attacked, NAME-adversaries.csv has the part of an update that each sees.
Where the comparison has cases, their accuracies are next to each other, and their costs in NAME-costs.csv. Columns of
these files that begin with `paper` stay, and so do those of `benchmarks/set_up.py`. The third does the same with the
runs of a sweep, under the name given: accuracies and zones in NAME.csv, the CPU seconds of each phase in
NAME-costs.csv.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NUMBERS, PICTURES = DOCS / "numbers", DOCS / "pictures"
COLOURS = ("#3b7dd8", "#d9534f", "#3fa672", "#e39a2d", "#8661c1", "#64748b")
COMPARISON = "encrypt-or-noise"
Rows = Sequence[Mapping[str, str]]


def rows_of(name: str) -> Rows:
    """The rows of a file of numbers, by the heads of its columns."""
    with (NUMBERS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float:
    """The number in a cell; NaN where there is none."""
    try:
        return float(text.rstrip("%").replace(",", ""))
    except ValueError:
        return float("nan")


def column(rows: Rows, key: str) -> list[float]:
    """A column as numbers."""
    return [number(row[key]) for row in rows]


# ---- pictures


def _bars(axes: Any, names: Sequence[str], series: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Groups of horizontal bars, with standard deviations."""
    height = 0.8 / len(series)
    for place, (label, (values, spread)) in enumerate(series.items()):
        at = [i + (place - (len(series) - 1) / 2) * height for i in range(len(names))]
        axes.barh(at, values, height, xerr=spread, label=label, color=COLOURS[place], ecolor="#333", capsize=2)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    if len(series) > 1:
        _legend_above(axes)


def _legend_above(axes: Any) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def _curves(axes: Any, at: Sequence[float], rows: Rows, keys: Mapping[str, str]) -> None:
    """Curves with bands of a standard deviation."""
    for place, (key, label) in enumerate(keys.items()):
        values, spread = column(rows, key), [number(row.get(f"{key} sd", "")) for row in rows]
        low = [value - around for value, around in zip(values, spread, strict=True)]
        high = [value + around for value, around in zip(values, spread, strict=True)]
        axes.plot(at, values, marker="o", markersize=4, color=COLOURS[place], label=label)
        axes.fill_between(at, low, high, color=COLOURS[place], alpha=0.15, linewidth=0)
    axes.legend()


def paraaegis(axes: Sequence[Any]) -> None:
    wide = rows_of("paraaegis-extremes")
    narrow = {row["protocol"]: row for row in rows_of("paraaegis-extremes-norm001")}
    missing = {"accuracy": "", "accuracy sd": ""}
    other = [narrow.get(row["protocol"], missing) for row in wide]
    _bars(axes[0], [row["protocol"] for row in wide], {
        "clipping norm 0.1": (column(wide, "accuracy"), column(wide, "accuracy sd")),
        "clipping norm 0.01": (column(other, "accuracy"), column(other, "accuracy sd")),
    })  # fmt: skip
    axes[0].set_xlabel("accuracy on Fashion-MNIST after 10 rounds; noise is worth epsilon 1")


def selectiveshield(axes: Sequence[Any]) -> None:
    for panel, name in zip(axes, ("selectiveshield-mnist", "selectiveshield-fashion-mnist"), strict=False):
        rows = sorted(rows_of(name), key=lambda row: number(row["encrypted %"]))
        _curves(panel, column(rows, "encrypted %"), rows, {
            "accuracy without noise": "without noise", "accuracy with noise": "with noise worth epsilon 1",
        })  # fmt: skip
        panel.set_xlabel(f"% encrypted, {'Fashion-MNIST' if 'fashion' in name else 'MNIST'}")
    axes[0].set_ylabel("accuracy")
    rows = rows_of("selectiveshield-ilrg-tau")
    _curves(axes[2], range(len(rows)), rows, {
        "iLRG naive LnAcc": "hidden entries as 0", "iLRG adaptive LnAcc": "hidden entries left out",
        "labels adaptive LnAcc": "least squares",
    })  # fmt: skip
    axes[2].set_xticks(range(len(rows)), [row["tau"] for row in rows])
    axes[2].set_xlabel("tau (higher: less is encrypted)")
    axes[2].set_ylabel("share of class counts found")


def sensecrypt(axes: Sequence[Any]) -> None:
    rows = rows_of("sensecrypt-clusters")
    _curves(axes[0], range(len(rows)), rows, {
        "Fashion-MNIST, calibrated": "calibrated noise", "Fashion-MNIST, printed": "the paper's formula",
    })  # fmt: skip
    axes[0].set_xticks(range(len(rows)), [row["epsilon"] for row in rows], rotation=45)
    axes[0].set_xlabel("epsilon")
    axes[0].set_ylabel("clusters found (adjusted Rand index)")
    rows = [row for row in rows_of("sensecrypt-figure18") if row["first"] in ("highest", "–")]
    _curves(axes[1], column(rows, "encrypted"), rows, {
        "LnAcc naive": "hidden entries as 0", "LnAcc adaptive": "hidden entries left out",
        "LnAcc least squares": "least squares",
    })  # fmt: skip
    axes[1].set_xlabel("% encrypted, highest |w · gradient| first")
    axes[1].set_ylabel("share of class counts found")


def sensecrypt_heatmaps(axes: Sequence[Any]) -> None:
    """Pairs of clients, as in Fig. 11, 12 and 15. Clients of a category are side by side."""
    rows = rows_of("matrices/sensecrypt-heatmaps")
    size = 1 + max(int(row["other"]) for row in rows)
    titles = {"EMD of labels": "labels", "distance": "sensitivity vectors", "distance at epsilon 0.1": "epsilon 0.1",
              "distance at epsilon 0.01": "epsilon 0.01"}  # fmt: skip
    for panel, (key, title) in zip(axes, titles.items(), strict=True):
        cells = [[0.0] * size for _ in range(size)]
        for row in rows:
            i, j = int(row["client"]), int(row["other"])
            cells[i][j] = cells[j][i] = number(row[key])
        for client in range(size):  # the distance to oneself is 0, which under noise would take all the colours
            cells[client][client] = float("nan")
        _heat(panel, cells)
        panel.set_title(title)
        panel.set_xlabel("client")
    axes[0].set_ylabel("client")


def sensecrypt_b_and_c(axes: Sequence[Any]) -> None:
    """The effect of B and C at a budget of 0.1, as in Fig. 13 and 14; white where it is too small for some seed."""
    rows = rows_of("matrices/sensecrypt-b-and-c")
    bs, cs = ([*dict.fromkeys(row[key] for row in rows)] for key in ("B", "C"))
    cell = {(row["B"], row["C"]): row for row in rows}
    for panel, (key, title) in zip(
        axes, {"raw encrypted": "share encrypted", "raw bits": "bits of the weights left"}.items(), strict=True
    ):
        values = [[number(cell[b, c][key]) if cell[b, c]["feasible"] == "3" else float("nan") for b in bs] for c in cs]
        image = _heat(panel, values)
        panel.figure.colorbar(image, ax=panel, shrink=0.8)
        panel.set_xticks(range(len(bs)), bs)
        panel.set_yticks(range(len(cs)), cs)
        panel.set_title(title)
        panel.set_xlabel("B")
    axes[0].set_ylabel("C")


def _heat(panel: Any, values: Sequence[Sequence[float]]) -> Any:
    panel.grid(visible=False)
    return panel.imshow(values, cmap="Blues", interpolation="none")


def fas(axes: Sequence[Any]) -> None:
    rows = rows_of("fas-digits")
    _curves(axes[0], column(rows, "share encrypted"), rows, {
        "accuracy without noise": "without noise", "accuracy at epsilon 8": "Laplace noise at epsilon 8",
    })  # fmt: skip
    axes[0].set_xlabel("% encrypted, digits")
    axes[0].set_ylabel("accuracy")
    rows = [row for row in rows_of("fas-inversion-share") if row["encrypted"].endswith("%")]
    _curves(axes[1], column(rows, "encrypted"), rows, {
        "MSSIM adaptive": "without noise", "MSSIM naive": "without noise, hidden entries as 0",
        "MSSIM with noise, adaptive": "with noise",
    })  # fmt: skip
    blind = {row["encrypted"]: row["MSSIM adaptive"] for row in rows_of("fas-inversion-share")}["mean image"]
    axes[1].axhline(number(blind), color="#64748b", linestyle="--", label="mean image: looks at nothing")
    axes[1].legend()
    axes[1].set_xlabel("% encrypted, X-rays")
    axes[1].set_ylabel("MSSIM of the image that an attack rebuilds")


def fedre(axes: Sequence[Any]) -> None:
    rows = {row["method"]: row for row in rows_of("fedre-receipts")}
    kinds = [name.removesuffix(" 10") for name in rows if name.endswith(" 10") and name.replace(" 10", " 50") in rows]
    pick = {label: [rows[f"{kind} {label}"] for kind in kinds] for label in ("10", "50")}
    _bars(axes[0], kinds, {
        f"epsilon {label}": (column(found, "IoU"), column(found, "IoU sd")) for label, found in pick.items()
    })  # fmt: skip
    axes[0].axvline(number(rows["FedAvg"]["IoU"]), color="#64748b", linestyle="--", label="FedAvg, no noise")
    axes[0].axvline(0.159, color="#64748b", linestyle=":", label="every pixel called tampered")
    _legend_above(axes[0])
    axes[0].set_xlabel("IoU of tampered pixels on receipts")


def _of_paper(text: str) -> tuple[float, float]:
    """A paper's number, or the middle of the range that it states and half the width."""
    found = [float(each) for each in re.findall(r"\d*\.?\d+", text)]
    low, high = (found[0], found[-1]) if found else (float("nan"), float("nan"))
    return (low + high) / 2, (high - low) / 2


def _paper_and_ours(
    axes: Any, rows: Rows, names: Sequence[str], paper: tuple[str, str], ours: Mapping[str, str], scale: float = 1
) -> None:
    """Bars of a paper's numbers, and below each ours; both with their labels."""
    stated = [_of_paper(row[paper[0]]) for row in rows]
    series = {paper[1]: ([value for value, _ in stated], [around or float("nan") for _, around in stated])}
    for key, label in ours.items():
        spread = [number(row.get(f"{key} sd", "")) * scale for row in rows]
        series[label] = ([value * scale for value in column(rows, key)], spread)
    _bars(axes, names, series)


def paraaegis_paper(axes: Sequence[Any]) -> None:
    rows = [row for row in rows_of("paraaegis-table1") if row["paper dir0.5"]]
    _paper_and_ours(axes[0], rows, [row["protocol"] for row in rows], ("paper dir0.5", "paper: ResNet-18, Imagenette"),
                    {"dir0.5": "ours: MLP, digits"}, 100)  # fmt: skip
    axes[0].set_xlabel("Table 1, Dir(0.5): accuracy in %")


def selectiveshield_paper(axes: Sequence[Any]) -> None:
    rows = [row for row in rows_of("selectiveshield-table2") if row["paper MNIST"]]
    names = {"mnist": ("MNIST", 8), "fashion-mnist": ("Fashion-MNIST", 9)}
    for panel, (key, (name, table)) in zip(axes, names.items(), strict=True):
        _paper_and_ours(panel, rows, [row["protocol"] for row in rows], (f"paper {name}", "paper: 60,000 examples"),
                        {key: "ours: 2,000"})  # fmt: skip
        panel.set_xlabel(f"Tables 2 and {table}, {name}: accuracy at epsilon 1")
    axes[1].set_yticklabels([])


def sensecrypt_paper(axes: Sequence[Any]) -> None:
    rows = [row for row in rows_of("sensecrypt-savings") if row["scenario"] != "statistical"]
    for panel, rival in zip(axes, ("of MaskCrypt", "of Paillier-FedAvg"), strict=True):
        _paper_and_ours(panel, rows, [row["scenario"] for row in rows], (f"the paper: {rival}", "paper"), {
            f"key server opens: {rival}": "ours, key server", f"clients open: {rival}": "ours, clients",
        })  # fmt: skip
        panel.set_xlabel(f"Fig. 3a, 4a: % of the time {rival} saved")
    axes[1].set_yticklabels([])


def fas_paper(axes: Sequence[Any]) -> None:
    rows = rows_of("fas-table1")
    clear = rows[0]
    both = [{
        "name": row["method"],
        "paper": str(number(row["paper: total, min"]) / number(clear["paper: total, min"])),
        "ours": str((number(row["CPU s"]) + number(row["before round 1"])) / number(clear["CPU s"])),
    } for row in rows if row["paper: total, min"] and row is not clear]  # fmt: skip
    _paper_and_ours(axes[0], both, [row["name"] for row in both], ("paper", "paper: minutes"), {
        "ours": "ours: CPU s with set-up",
    })  # fmt: skip
    axes[0].set_xlabel("Table 3, MobileNetV2: time over that in the clear")
    rows = rows_of("fas-inversion-share")
    shares = [row for row in rows if row["the paper's MSSIM"]]
    _paper_and_ours(axes[1], shares, [row["encrypted"] for row in shares], ("the paper's MSSIM", "paper"), {
        "MSSIM adaptive": "ours, no noise", "MSSIM with noise, adaptive": "ours, epsilon 8",
    })  # fmt: skip
    blind = {row["encrypted"]: row["MSSIM adaptive"] for row in rows}["mean image"]
    axes[1].axvline(number(blind), color="#64748b", linestyle="--", label="mean image")
    _legend_above(axes[1])
    axes[1].set_xlabel("Fig. 11: MSSIM of the rebuilt image, by % encrypted")


def fedre_paper(axes: Sequence[Any]) -> None:
    rows = [row for row in rows_of("fedre-receipts") if row["paper IoU"]]
    _paper_and_ours(axes[0], rows, [row["method"].replace(" ", ", epsilon ") for row in rows], (
        "paper IoU", "paper: T-SROIE"), {"IoU": "ours: tampered SROIE crops, small U-Net"})  # fmt: skip
    axes[0].set_xlabel("Table 1: IoU of tampered pixels")


def negotiation(axes: Sequence[Any]) -> None:
    rows = rows_of("negotiation")
    _bars(axes[0], [row["what is told"] for row in rows], {
        "most classes": (column(rows, "server, most classes"), column(rows, "server, most classes sd")),
        "few classes": (column(rows, "server, few classes"), column(rows, "server, few classes sd")),
    })  # fmt: skip
    axes[0].axvline(0.5, color="#64748b", linestyle="--")
    axes[0].set_xlabel("how well the server tells a client's classes (AUC); 0.5 is a guess")


def encryption(axes: Sequence[Any]) -> None:
    rows = rows_of("encryption")
    names = [next(iter(row.values())).replace("`", "").split(" [")[0] for row in rows]
    titles = {"encrypt and serialise": "CPU ns to encrypt a parameter", "bytes": "bytes a parameter"}
    for panel, (key, label) in zip(axes, titles.items(), strict=True):
        _bars(panel, names, {label: (column(rows, key), [0.0] * len(rows))})
        panel.set_xlabel(label)
    axes[1].set_yticklabels([])


def comparison(axes: Sequence[Any]) -> None:
    """The cost of accuracy: bytes, and epsilon toward the server and of the released model."""
    rows = rows_of(COMPARISON)
    titles = {"MB": "MB sent, both ways", "epsilon of the server's view": "ε toward the server",
              "epsilon of the released model": "ε of the released model"}  # fmt: skip
    for panel, (key, title) in zip(axes, titles.items(), strict=True):
        steps = sorted({number(row[key]) for row in rows if row[key]})
        for place, row in enumerate(rows):
            known = row[key] != ""
            at = number(row[key]) if key == "MB" else float(steps.index(number(row[key])) if known else len(steps))
            panel.errorbar([at + (0 if key == "MB" or known else 0.12 * (place - 1.5))], [number(row["accuracy"])],
                           [number(row["accuracy sd"])], fmt="o", markersize=9, color=COLOURS[place], capsize=3,
                           label=row["protocol"])  # fmt: skip
        panel.set_title(title)
        panel.set_ylim(0.9, 1)
        if key != "MB":
            panel.set_xticks(range(len(steps) + 1), [*(f"{step:.3g}" for step in steps), "no guarantee"])
            panel.set_xlim(-0.5, len(steps) + 0.5)
        else:
            panel.set_xlim(0)
    axes[0].set_ylabel("accuracy on digits (from 0.9)")
    axes[0].legend(loc="lower right")


def who_holds_the_key(axes: Sequence[Any]) -> None:
    """Which adversaries open an update, by protocol: a cell for each adversary, redder where it sees more."""
    from matplotlib.colors import ListedColormap

    rows = rows_of("who-holds-the-key-adversaries")
    names = [key for key in rows[0] if key != "who looks"]
    known = {"–": (0, "no such party"), "hidden": (1, "hidden"), "sees no update": (1, "hidden"),
             "opened, with noise": (2, "open, noised"), "opened": (4, "open")}  # fmt: skip
    seen = [[row[name].partition(":")[0] for name in names] for row in rows]
    cells = [[known.get(sees, (3, sees.replace(", ", ",\n"))) for sees in line] for line in seen]
    panel = axes[0]
    panel.grid(visible=False)
    colours = ListedColormap(["#f1f5f9", "#3fa672", "#e39a2d", "#e8846b", "#d9534f"])
    panel.imshow([[shade for shade, _ in line] for line in cells], cmap=colours, vmin=0, vmax=4, aspect="auto")
    for i, line in enumerate(cells):
        for j, (shade, words) in enumerate(line):
            panel.text(j, i, words, ha="center", va="center", color="white" if shade else "#64748b")
    panel.set_xticks(range(len(names)), names)
    panel.set_yticks(range(len(rows)), [row["who looks"] for row in rows])
    panel.tick_params(length=0)
    panel.set_title("the update of one client, as each of these sees it")


def both_wishes(axes: Sequence[Any]) -> None:
    """Accuracy over epsilon, a curve for each number of clients; dotted: the same without noise."""
    panel, rows = axes[0], [row for row in rows_of("both-wishes") if row["inputs"] == "public features"]
    for place, clients in enumerate(sorted({row["clients"] for row in rows}, key=int)):
        curve = [row for row in rows if row["clients"] == clients]
        private = sorted((row for row in curve if row["epsilon"]), key=lambda row: float(row["epsilon"]))
        panel.plot(column(private, "epsilon"), column(private, "accuracy"), marker="o", markersize=4,
                   color=COLOURS[place], label=f"{int(clients):,} clients")  # fmt: skip
        if clear := [float(row["accuracy"]) for row in curve if not row["epsilon"]]:
            panel.axhline(clear[0], color=COLOURS[place], linestyle=":", linewidth=1)
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_ylim(0, 1)
    panel.set_xlabel("epsilon toward everybody, for a client")
    panel.set_ylabel("accuracy on MNIST")
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right")


VERDICTS = {
    "reproduced": "#3fa672", "reproduced in direction": "#8cc9a5", "refuted": "#d9534f",
    "our setting differs": "#e8c07d", "not testable here": "#94a3b8", "not measured": "#cbd5e1",
}  # fmt: skip
PAPERS = {"paraaegis": "ParaAegis", "selectiveshield": "SelectiveShield", "sensecrypt": "SenseCrypt", "fas": "FAS",
          "fedre": "FedRE"}  # fmt: skip


def scoreboard(axes: Sequence[Any]) -> None:
    """The number of claims of each paper by verdict."""
    panel, found = axes[0], {paper: [row["verdict"] for row in rows_of(f"claims-{paper}")] for paper in PAPERS}
    left = [0] * len(PAPERS)
    for verdict, colour in VERDICTS.items():
        counts = [verdicts.count(verdict) for verdicts in found.values()]
        if not any(counts):
            continue
        panel.barh([*PAPERS.values()], counts, left=left, color=colour, label=verdict, height=0.62)
        for place, (count, start) in enumerate(zip(counts, left, strict=True)):
            if count:
                ink = "white" if colour in ("#3fa672", "#d9534f") else "#1f2328"
                panel.text(start + count / 2, place, count, ha="center", va="center", color=ink, fontweight="bold")
        left = [start + count for start, count in zip(left, counts, strict=True)]
    panel.invert_yaxis()
    panel.grid(visible=False)
    panel.spines["bottom"].set_visible(False)
    panel.spines["left"].set_visible(False)
    panel.set_xticks([])
    panel.tick_params(length=0)
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)


def robustness(axes: Sequence[Any]) -> None:
    """Accuracy under attack, with the epsilon toward the server next to each name."""
    rows = rows_of("privacy-and-robustness")
    eps = [row["epsilon toward the server"] for row in rows]
    names = [row["protocol"] + ("" if each == "none" else f" (ε {each})") for row, each in zip(rows, eps, strict=True)]
    for panel, key in zip(axes, ("MNIST", "X-rays"), strict=True):
        _bars(panel, names, {
            words: (column(rows, name), column(rows, f"{name} sd"))
            for words, name in {"nobody lies": f"{key}, nobody lies", "20 of 100 clients lie": key}.items()
        })  # fmt: skip
        panel.set_xlabel(f"accuracy on {key}")
    axes[1].set_yticklabels([])


Drawer = Callable[[Sequence[Any]], None]
DRAWN: dict[str, tuple[Drawer, tuple[str, ...], int, tuple[float, float]]] = {
    "paraaegis": (paraaegis, ("paraaegis-extremes", "paraaegis-extremes-norm001"), 1, (8, 4.2)),
    "selectiveshield": (selectiveshield, (
        "selectiveshield-mnist", "selectiveshield-fashion-mnist", "selectiveshield-ilrg-tau"), 3, (11, 3.6)),
    "sensecrypt": (sensecrypt, ("sensecrypt-clusters", "sensecrypt-figure18"), 2, (9, 3.8)),
    "sensecrypt-heatmaps": (sensecrypt_heatmaps, ("matrices/sensecrypt-heatmaps",), 4, (11, 3.0)),
    "sensecrypt-b-and-c": (sensecrypt_b_and_c, ("matrices/sensecrypt-b-and-c",), 2, (9, 3.4)),
    "fas": (fas, ("fas-digits", "fas-inversion-share"), 2, (9, 3.8)),
    "fedre": (fedre, ("fedre-receipts",), 1, (8, 4.2)),
    "paraaegis-paper": (paraaegis_paper, ("paraaegis-table1",), 1, (8, 5.4)),
    "selectiveshield-paper": (selectiveshield_paper, ("selectiveshield-table2",), 2, (9, 3.8)),
    "sensecrypt-paper": (sensecrypt_paper, ("sensecrypt-savings",), 2, (10, 2.8)),
    "fas-paper": (fas_paper, ("fas-table1", "fas-inversion-share"), 2, (10, 3.8)),
    "fedre-paper": (fedre_paper, ("fedre-receipts",), 1, (8, 3.4)),
    "negotiation": (negotiation, ("negotiation",), 1, (9, 4.2)),
    "encryption": (encryption, ("encryption",), 2, (9, 3.0)),
    "who-holds-the-key": (who_holds_the_key, ("who-holds-the-key-adversaries",), 1, (10, 3.6)),
    COMPARISON: (comparison, (COMPARISON,), 3, (10, 3.4)),
    "scoreboard": (scoreboard, tuple(f"claims-{paper}" for paper in PAPERS), 1, (9, 3.2)),
    "both-wishes": (both_wishes, ("both-wishes",), 1, (8, 3.2)),
    "privacy-and-robustness": (robustness, ("privacy-and-robustness",), 2, (10, 4.2)),
}  # fmt: skip
"""Name of the picture -> what draws it, the numbers that it shows, panels, size in inches."""


def mark_of(name: str) -> str:
    """The mark in a picture of the numbers that it was drawn from. A picture without it is stale."""
    digest = hashlib.sha256(b"".join((NUMBERS / f"{each}.csv").read_bytes() for each in DRAWN[name][1])).hexdigest()
    return f"<!-- drawn by docs/draw.py from {', '.join(DRAWN[name][1])}: {digest[:16]} -->"


BY_NIGHT = """ <style>
  text { fill: #1f2328 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    [style*="stroke: #000000"], [style*="stroke: #333333"] { stroke: #9198a1 !important }
  }
 </style>
"""
"""Ink that is readable on a dark page too, because the pictures have no background."""


def draw(name: str) -> str:
    """A picture as SVG; the same bytes from the same numbers and the same matplotlib."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    drawer, _, panels, size = DRAWN[name]
    style = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "DejaVu Sans", "font.size": 9,
             "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
             "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True}  # fmt: skip
    with mpl.rc_context(style):
        figure, axes = plt.subplots(1, panels, figsize=size, layout="constrained", squeeze=False)
        drawer([*axes[0]])
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        plt.close(figure)
    svg = text.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")  # for readers without it
    head, _, rest = svg.partition("<svg ")
    opening, _, inside = rest.partition(">")
    svg = f"{head}{mark_of(name)}\n<svg {opening}>\n{BY_NIGHT}{inside}"
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


VIEWS = {
    "epsilon_server": "epsilon of the server's view", "epsilon_client": "epsilon of a client's view",
    "epsilon_released_model": "epsilon of the released model", "epsilon_of_record": "epsilon of a record",
}  # fmt: skip
JOINT = {"epsilon_client_and_server": "epsilon of a client with the server"}
"""Of a comparison in which parties collude."""


BEFORE = "CPU s before round 1"
"""The column of `benchmarks/set_up.py`, which the rounds of a comparison lack."""
PHASES = ("train", "score", "negotiate", "protect", "aggregate", "open")
"""In the order of a round. Other work of a run comes after them."""


def take(folder: Path) -> str:
    """Writes a file of numbers from the output folder of `fedplug compare`. Returns its name."""
    path = folder / "compare.csv"
    if cases := sorted(folder.glob("*/compare.csv"), key=lambda case: case.stat().st_mtime):
        return take_cases(folder.name.removeprefix("compare-"), cases)
    if not path.is_file():
        sys.exit(f"{path} is not there; make it with: fedplug compare recipes/comparisons/{COMPARISON}.yaml")
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))

    def shown(row: Mapping[str, str], key: str, digits: int) -> str:
        # The column of records has their epsilon; the views are those of a client.
        known = row.get(key) and row.get(f"{key}_unit", "client") == "client"
        return f"{float(row[key]):.{digits}f}" if known else ""

    adversaries = [key.removesuffix(_SEES).removeprefix(_LEAKS) for key in found[0] if key.endswith(_SEES)]
    views = VIEWS | (JOINT if adversaries else {})
    lines = [
        {"protocol": row["protocol"], "seeds": row["seeds_list"],
         "accuracy": shown(row, "accuracy_mean", 3), "accuracy sd": shown(row, "accuracy_sd", 3),
         "MB": f"{(float(row['bytes_up_mean']) + float(row['bytes_down_mean'])) / 1e6:.1f}",
         "seconds": shown(row, "seconds_mean", 1), **{title: shown(row, key, 2) for key, title in views.items()}}
        for row in found
    ]  # fmt: skip
    name = path.parent.name.removeprefix("compare-")
    write(name, lines)
    if adversaries:
        write(f"{name}-adversaries", [
            {"who looks": _who(each), **{row["protocol"]: _taken(row, each) for row in found}} for each in adversaries
        ], ["who looks"])  # fmt: skip
    return name


_LEAKS, _SEES = "leakage_", "_sees"


def _who(adversary: str) -> str:
    """`the server and 5 clients` for a coalition as a recipe writes it."""
    roles = [role.partition(":")[0] for role in adversary.split("+")]
    count = roles.count("client")
    clients = [] if not count else ["a client" if count == 1 else f"{count} clients"]
    names = {"server": "the server", "key_server": "the key server", "eavesdropper": "an eavesdropper"}
    return " and ".join([*(names.get(role, role) for role in roles if role != "client"), *clients])


def _taken(row: Mapping[str, str], adversary: str) -> str:
    """The part of an update that an adversary sees, and the people it recovered; a dash without such a party."""
    sees = row.get(f"{_LEAKS}{adversary}{_SEES}", "")
    people = row.get(f"{_LEAKS}{adversary}_people", "")
    if not people or int(people) == 0:
        return sees or "–"
    return f"{sees}: {row[f'{_LEAKS}{adversary}_recovered']} of {people} images"


def take_cases(name: str, cases: Sequence[Path]) -> str:
    """Writes the numbers of a comparison with cases, in the order in which these were made. Returns its name."""
    accuracies: dict[str, dict[str, str]] = {}
    costs: dict[str, dict[str, dict[str, float]]] = {}
    for path in cases:
        with path.open(encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
        for row in found:
            line = accuracies.setdefault(row["protocol"], {"protocol": row["protocol"]})
            titles = {"accuracy": path.parent.name, "personal_accuracy": f"{path.parent.name}, own models"}
            for key, title in titles.items():
                if row.get(f"{key}_mean"):
                    line[title] = f"{float(row[f'{key}_mean']):.3f}"
                    line[f"{title} sd"] = f"{float(row[f'{key}_sd'] or 0):.3f}"
            seconds, cost = float(row["seconds_cpu_mean"]), costs.setdefault(row["protocol"], {})
            cost.setdefault("CPU s", {})[path.parent.name] = seconds
            cost.setdefault("% per CPU s", {})[path.parent.name] = 100 * float(row["accuracy_mean"]) / seconds
            size = float(row["bytes_up_mean"]) + float(row["bytes_down_mean"])
            cost.setdefault("MB", {path.parent.name: size / 1e6})  # of the first case; the others hardly differ
    write(name, [*accuracies.values()])
    write(f"{name}-costs", [
        {"protocol": protocol, **{
            f"{title}, {case}": f"{value:.1f}" for title, by_case in cost.items() for case, value in by_case.items()
        }}
        for protocol, cost in costs.items()
    ])  # fmt: skip
    return name


def take_sweep(folder: Path, name: str) -> None:
    """Writes the numbers of a sweep, means and standard deviations over seeds, and the costs of its runs.

    A phase's CPU seconds are the run's, times the phase's share of its work. Phases are timed by the wall clock, which
    other programs on the machine stretch for all phases alike.
    """
    file = folder / "sweep.jsonl"
    if not file.is_file():
        sys.exit(f"{file} is not there; make it with: fedplug sweep RECIPE GRID --output {folder}")
    runs: dict[tuple[tuple[str, str], ...], dict[int, Mapping[str, Any]]] = {}
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        if line.get("result"):
            given = {"case": line["case"], **{path: str(value) for path, value in line["parameters"].items()}}
            runs.setdefault(tuple(given.items()), {})[line["seed"]] = line["result"]
    if not runs:
        sys.exit(f"{file} holds no run that ended well; run the sweep again")
    lines, costs = [], []
    for key, by_seed in runs.items():
        results = [*by_seed.values()]
        lines.append({**dict(key), **_results_of(results)})
        spent = [_cpu_seconds(result) for result in results]
        phases = dict.fromkeys(phase for phase in PHASES if any(phase in each for each in spent))
        phases |= dict.fromkeys(phase for each in spent for phase in each)
        costs.append(
            {**dict(key), **{p: f"{statistics.fmean(each.get(p, 0.0) for each in spent):.2f}" for p in phases}}
        )
    first = [title for title, _ in next(iter(runs))]
    write(name, lines, first)
    write(f"{name}-costs", costs, first)


def _results_of(results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The results of the runs of several seeds: zones in percent, accuracies; means, and `x sd` after each x."""
    numbers = {f"{zone} %": ([100 * result["zones"][zone] for result in results], 1) for zone in results[0]["zones"]}
    numbers["accuracy"] = [result["accuracy"] for result in results], 3
    if all(result.get("personal_accuracy") for result in results):
        numbers["own models"] = [result["personal_accuracy"]["mean"] for result in results], 3
    return {
        f"{title}{end}": f"{number:.{digits}f}"
        for title, (values, digits) in numbers.items() if any(values)
        for end, number in (("", statistics.fmean(values)), (" sd", statistics.stdev(values) if values[1:] else 0.0))
    }  # fmt: skip


def _cpu_seconds(result: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds of a run, by phase and in all."""
    seconds, whole = result["seconds"], result["cpu_seconds"]
    return {**{phase: whole * each / sum(seconds.values()) for phase, each in seconds.items()}, "all": whole}


def write(name: str, lines: Sequence[dict[str, str]], of: Sequence[str] = ("protocol",)) -> None:
    """Writes a file of numbers, without empty columns, and keeps columns that only the existing file has.

    These are columns that begin with `paper`, quoted from one, and the seconds before round 1.

    Args:
        name: of the file.
        lines: by column.
        of: the columns that identify a line.
    """
    there: dict[tuple[str, ...], Mapping[str, str]] = {}
    if (NUMBERS / f"{name}.csv").is_file():
        there = {tuple(row[key] for key in of): row for row in rows_of(name)}
    keys = dict.fromkeys(key for line in lines for key in line)
    for line in lines:
        quoted = there.get(tuple(line[key] for key in of), {})
        line |= {key: value for key, value in quoted.items() if key.startswith("paper") or key == BEFORE}
    keys |= dict.fromkeys(key for line in lines for key in line)
    with (NUMBERS / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        kept = [key for key in keys if any(line.get(key) for line in lines)]
        writer = csv.DictWriter(file, kept, restval="", lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparison", type=Path, metavar="FOLDER", help="write its numbers to docs/numbers first")
    parser.add_argument("--sweep", nargs=2, metavar=("FOLDER", "NAME"), help="the same of a sweep, as NAME.csv")
    given = parser.parse_args()
    if given.comparison:
        print(f"wrote docs/numbers/{take(given.comparison.resolve())}.csv")
    if given.sweep:
        take_sweep(Path(given.sweep[0]), given.sweep[1])
        print(f"wrote docs/numbers/{given.sweep[1]}.csv and {given.sweep[1]}-costs.csv")
    PICTURES.mkdir(exist_ok=True)
    for picture in DRAWN:
        (PICTURES / f"{picture}.svg").write_text(draw(picture), encoding="utf-8")
        print(f"drew docs/pictures/{picture}.svg")
