"""The command `fedplug data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_terminal.options import command


@command(group="Inspect", epilog="Example: fedplug data patients.csv --answer outcome")
def data(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table: CSV or Parquet.", show_default=False)],
    answer: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict. Default: a guess, which is named.")
    ] = None,
    predict: Annotated[
        str | None, typer.Option(metavar="KIND", help="classes or numbers. Default: by the values of the answer.")
    ] = None,
    sites: Annotated[
        bool, typer.Option("--sites", help="Draft for sites that each have such a file, with what they agree on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the columns of a table, and draft the section of a recipe that reads it."""
    import json

    from fedplug.api.errors import SetupError
    from fedplug_std.drafts import described

    if predict not in (None, "classes", "numbers"):
        raise SetupError(f"--predict {predict} must be classes or numbers")
    found = described(file.expanduser(), str(file), answer, predict)
    if as_json:
        typer.echo(json.dumps(found.as_dict(sites), indent=2, ensure_ascii=False))
        return
    _tell(found, sites)


def _tell(found: object, sites: bool) -> None:
    import sys

    from fedplug_std.drafts import PUBLISHES, Described, lines_of
    from fedplug_terminal.lines import aligned, tell, width_of

    assert isinstance(found, Described)
    rows = [(each.name if each.name.isprintable() else repr(each.name), each.kind, str(each.gaps),
             str(each.different), each.values()) for each in found.columns]  # fmt: skip
    tell(f"{found.file}: {len(found.rows)} rows, {len(rows)} column{'s' * (len(rows) > 1)}\n")
    for line in aligned(("column", "type", "gaps", "different", "values"), rows, width_of(sys.stdout)):
        print(line)
    print()
    classes = found.classes()
    if classes:
        first = next(iter(classes))
        share = classes[first] / sum(classes.values())
        tell(
            f"answer {found.answer}: {len(classes)} class{'es' * (len(classes) > 1)}; the commonest, {first}, has a "
            f"share of {share:.3f}, the accuracy of a model that always answers it"
        )
    else:
        tell(f"answer {found.answer}: numbers, a regression")
    for remark in found.remarks:
        tell(f"* {remark}")
    tell(f"\nA draft. It was made on this machine, and nobody else has seen it; {PUBLISHES}.\n")
    print("\n".join(lines_of(found.at_sites() if sites else found.here())))
