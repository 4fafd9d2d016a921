"""Runs the protocols of the gallery and writes what each did to docs/numbers/gallery.csv; `docs/generate.py` draws the
cards of docs/gallery.md from it.

    python docs/gallery.py [RECIPE ...]
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fedplug
from fedplug_ledger.grades import LARGEST_MEANINGFUL
from fedplug_ledger.tiers import MODERATE

DOCS = Path(__file__).parent
NUMBERS = DOCS / "numbers/gallery.csv"
PARTIES = ("server", "key server", "another client", "client with server", "released model")
"""The lines of a verdict, in its order."""
GALLERY: dict[str, dict[str, str]] = {
    "Nothing protected": {"fedavg": "FedAvg"},
    "Everything encrypted": {
        "bfv-fedavg": "FedAvg under BFV", "ckks-fedavg": "FedAvg under CKKS",
        "baselines/paillier-fedavg": "FedAvg under Paillier", "threshold-fedavg": "FedAvg under a joint key",
        "threshold-distributed-dp": "A joint key and shared noise", "baselines/batchcrypt": "BatchCrypt",
        "secagg-digits": "SecAgg with shared noise", "baselines/lwe": "LWE sums with noise",
    },
    "Everything noised": {
        "dp-fedavg": "DP-FedAvg, noise at clients", "central-dp-fedavg": "DP-FedAvg, noise at the server",
        "dp-ftrl": "DP-FTRL", "baselines/dp-sgd": "DP-SGD", "baselines/nbafl": "NbAFL", "baselines/ldp-fed": "LDP-Fed",
        "baselines/feddpa": "FedDPA", "baselines/blur-lus": "BLUR + LUS",
    },
    "The five papers": {
        "paraaegis-static": "ParaAegis, static", "paraaegis-dynamic": "ParaAegis, dynamic", "selectiveshield":
        "SelectiveShield", "sensecrypt": "SenseCrypt", "fas": "FAS", "fedre-digits": "FedRE",
    },
    "Other selective protocols": {
        "baselines/fedml-he": "FedML-HE", "baselines/maskcrypt": "MaskCrypt", "baselines/random-mask": "A random mask",
        "serial-dp-he": "Noise, then encryption",
    },
    "Hybrids": {
        "hybrids/paraaegis-vote-fedre-budgets": "ParaAegis' vote, FedRE's budgets",
        "hybrids/maskcrypt-distributed-dp": "MaskCrypt with shared noise",
        "hybrids/selectiveshield-consensus-fas-scrambling": "SelectiveShield's consensus, FAS' scrambling",
        "hybrids/sensecrypt-groups-paraaegis-vote": "SenseCrypt's groups, ParaAegis' vote",
        "paraaegis-secagg": "ParaAegis under SecAgg", "paraaegis-threshold": "ParaAegis under a joint key",
    },
}  # fmt: skip
"""Groups of cards: the recipe and its title."""


def measured(name: str) -> dict[str, str]:
    """A row: what the protocol of a recipe does, what its ledger states, and what it costs in one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = fedplug.run(DOCS.parent / f"recipes/{name}.yaml", output=folder, quiet=True)
        rows, ledger, recipe = list(run.metrics), run.ledger, run.recipe
        uploads = sum(row.clients.answered for row in rows)
        parameters = run.summary.parameters
        shares = {zone: [row.zones.get(zone, 0.0) for row in rows] for zone in rows[-1].zones}
        chains = chains_of(recipe)
        zones = [
            f"{zone} {max(share):.3f} {chains.get(zone, '')}".strip()
            for zone, share in shares.items() if max(share) > 0
        ]  # fmt: skip
        lines = [_line(line) for line in ledger.verdict.lines]
        return {
            "recipe": name,
            **components(recipe),
            "zones": "; ".join(zones),
            "who opens": _openers(ledger.encryption),
            **dict(zip(PARTIES, lines, strict=True)),
            "bytes up": f"{sum(row.bytes.up.total for row in rows) / uploads / parameters / 4:.2f}",
            "ms": f"{1000 * sum(row.wall_seconds for row in rows) / uploads:.1f}",
            "rounds": str(len(rows)),
            "accuracy": f"{rows[-1].accuracy:.3f}",
        }


def components(recipe: Any) -> dict[str, str]:
    """The cells of a row that follow from the recipe alone."""
    chains = chains_of(recipe)
    steps = [(zone, link.use) for zone, links in recipe.postprocess.items() for link in links]
    return {
        "trainer": recipe.train.use,
        "mask": recipe.negotiate_mask.use if recipe.negotiate_mask else "",
        "at the server": "; ".join(f"{zone} {use}" for zone, use in steps if use not in chains.get(zone, "")),
    }


def chains_of(recipe: Any) -> dict[str, str]:
    """What a client applies to each zone, in order."""
    return {zone: " → ".join(link.use for link in links) for zone, links in recipe.protect.items() if links}


def _line(line: Any) -> str:
    if line.state in ("guaranteed", "beyond") and line.value is not None:
        unit, weak = "" if line.unit == "client" else f" a {line.unit}", " weak" if line.weak else ""
        return "0" if line.nothing else f"{line.value:.3g}{unit}{weak}"
    return "–" if line.state == "absent" else ""


def _openers(encryption: Mapping[str, Any]) -> str:
    named = {"clients": "every client", "key_server": "the key server", "shares": "{} clients together"}
    found = (named[closed.key_holder].format(closed.opens_with) for closed in encryption.values())
    return "; ".join(dict.fromkeys(found))


def zones_of(row: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The zones of a row: name, share, what a client applies."""
    found = [re.fullmatch(r"(\S+) (\S+) ?(.*)", zone) for zone in row["zones"].split("; ")]
    return [(zone[1], zone[2], zone[3]) for zone in found if zone]


def page_of(group: str) -> str:
    """The name of the page of docs/reference/recipes that has the recipes of a group."""
    return re.sub(r"\W+", "-", group.lower())


def cards(rows: Sequence[Mapping[str, str]]) -> str:
    """The gallery as HTML: a card for each row, under the heading of its group."""
    found, groups = {row["recipe"]: row for row in rows}, list[str]()
    for group, titles in GALLERY.items():
        page = f"[The recipes themselves](reference/recipes/{page_of(group)}.md)"
        shown = "".join(_card(found[recipe], title) for recipe, title in titles.items())
        groups.append(f'\n### {group}\n\n{page}\n\n<div class="cards">\n{shown}</div>\n')
    return "\n".join(groups)


def _card(row: Mapping[str, str], title: str) -> str:
    zones = zones_of(row)
    bar = "".join(
        f'<span class="{zone}" style="flex-grow: {share}">{f"{zone} {100 * float(share):.0f}%"}</span>'
        for zone, share, _ in zones
    )
    chains = [(zone, chain) for zone, _, chain in zones if chain]
    chains += [("server", link) for link in row["at the server"].split("; ") if link]
    trainer = row["trainer"]
    facts = {
        "Mask": "everything alike" if row["mask"] == "std.single_zone" else f"<code>{row['mask']}</code>",
        "Training": "" if trainer == "std.sgd" else f"<code>{trainer}</code>",
        "Protection": "; ".join(f"{zone}: <code>{chain}</code>" for zone, chain in chains) or "none",
        "Opens an upload": row["who opens"] or "nothing is encrypted",
        "Cost": f"{row['bytes up']} × the bytes of FedAvg, up; {row['ms']} ms a client and round",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in facts.items() if said)
    promises = dict[tuple[str, str], list[str]]()
    for party in PARTIES:
        promises.setdefault(_promise(row[party]), []).append(party)
    promised = "".join(f'<li class="{kind}">{said}: {", ".join(to)}</li>' for (kind, said), to in promises.items())
    return (
        f'<div class="card">\n<h4>{title}</h4>\n<div class="zones">{bar}</div>\n<dl>{listed}</dl>\n'
        f'<ul class="promises">{promised}</ul>\n<code>fedplug run {row["recipe"].rpartition("/")[2]}</code>\n</div>\n'
    )


def _promise(stated: str) -> tuple[str, str]:
    """How a card shows what one party is limited to: its colour and its words."""
    if stated == "–":
        return "absent", "no such party"
    epsilon = float(stated.split()[0]) if stated else None
    if epsilon is None:
        return "none", "no guarantee"
    if epsilon > LARGEST_MEANINGFUL:
        return "beyond", f"no guarantee (ε {epsilon:,.0f})"
    if stated.endswith(" weak"):
        return "weak", f"weak guarantee (ε {stated.removesuffix(' weak')})"
    if not epsilon:
        return "kept", "sees nothing of updates (ε 0)"
    # In the colour of what is weak, as on a report: a guarantee for records alone, or one that says little.
    if not stated.replace(".", "").isdigit():
        return "weak", f"ε {stated} only"
    # Replace-one doubles what a client can change, and epsilon at the least.
    return ("kept" if 2 * epsilon <= MODERATE else "weak"), f"ε {stated}"


def main(names: Sequence[str]) -> None:
    """Measures these recipes, or all; the rows of others stay."""
    rows: dict[str, dict[str, str]] = {}
    if names and NUMBERS.is_file():
        with NUMBERS.open(encoding="utf-8", newline="") as file:
            rows = {row["recipe"]: row for row in csv.DictReader(file)}
    every = [recipe for group in GALLERY.values() for recipe in group]
    for recipe in names or every:
        rows[recipe] = measured(recipe)
        print(rows[recipe], flush=True)
    kept = [rows[recipe] for recipe in every if recipe in rows]
    with NUMBERS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)


if __name__ == "__main__":
    main(sys.argv[1:])
