"""The commands `fedplug evidence` and `fedplug verify`. Everything heavy is imported inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_terminal.as_json import document
from fedplug_terminal.options import Json, RunFolder, command


@command(group="Inspect", epilog="Example: fedplug evidence runs/bfv-fedavg-20260101-120000. More: docs/evidence.md")
def evidence(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the evidence; default: evidence in the run folder.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ed25519 private key, PEM or OpenSSH; default: your fedplug key."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing evidence.")] = False,
    sites: Annotated[
        list[Path] | None,
        typer.Option("--site", metavar="FILE", help="The leakage.json of a site that attacked itself; repeatable."),
    ] = None,
) -> None:
    """Write a signed folder for a reviewer: who could see what in a run, what was sent, and what is not protected."""
    from fedplug_evidence.making import make_evidence

    folder, notes = make_evidence(run, output, key, force, sites=sites or ())
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"evidence: {folder / 'index.html'}")
    typer.echo(f"check it with: fedplug verify {folder}")


@command(group="Inspect", epilog="Example: fedplug verify evidence --signer engineer.pub.pem. More: docs/evidence.md")
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of evidence.", show_default=False)],
    signer: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The signer's public key: a file, or 32 bytes in hexadecimal or base64."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check evidence: every file, the signature, and the ledger, which is recomputed. Needs neither data nor torch."""
    from fedplug.api.records import one_line

    from fedplug_evidence.keys import read_public
    from fedplug_evidence.verifying import verify_folder

    found = verify_folder(folder, None if signer is None else read_public(signer))
    code = 0 if found.ok else 1 if found.problems else 2
    if as_json:
        from fedplug_evidence.keys import fingerprint

        public = found.public and fingerprint(found.public)
        problems, facts = found.problems, {"unchecked": found.unchecked, "signer": public, "outcome": found.last}
        typer.echo(document("verify", problems, found.notes, ok=found.ok, folder=str(folder), **facts))
        raise typer.Exit(code)
    for note in found.notes:
        typer.echo(f"  {one_line(note, 2000)}.")
    for problem in found.problems:
        typer.echo(f"  MISMATCH: {one_line(problem, 2000)}")
    typer.echo(one_line(found.last, 4000))
    raise typer.Exit(code)
