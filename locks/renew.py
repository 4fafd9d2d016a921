"""Writes the lock files: every distribution that the environments of the Makefile get, with its version and the hashes
of all its files, for every platform and every Python from 3.11 on.

torch and torchvision are in no lock, and what only their CUDA builds need is neither: which build is right depends on
the machine, builds of one version have different hashes, and those for the CPU come from an index of their own.
`constraints.txt` pins their versions.

    make lock
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

LOCKS = Path(__file__).parent
ROOT = LOCKS.parent
OLDEST = "3.11"
OUTSIDE = ("torch", "torchvision")
TORCH = """
[[dependency-metadata]]
name = "torch"
requires-dist = [
    "filelock", "fsspec>=0.8.5", "jinja2", "networkx>=2.5.1", "setuptools>=77.0.3", "sympy>=1.13.3",
    "typing-extensions>=4.10.0",
]
"""
"""What torch needs on every machine. Its own metadata add CUDA, on Linux."""
HEAD = "# Written by `make lock`; do not edit. torch and torchvision are in constraints.txt.\n"


def main() -> int:
    """Writes a lock for each environment of the Makefile, and `others.txt` for what no target of it installs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", nargs="+", required=True, metavar="FOLDER[EXTRA,...]")
    parser.add_argument("--extras", nargs="+", required=True, metavar="FOLDER[EXTRA,...]")
    parser.add_argument("--docs", nargs="+", required=True, metavar="FOLDER[EXTRA,...]")
    parser.add_argument("--release", nargs="+", required=True, metavar="FOLDER[EXTRA,...]")
    parser.add_argument("--others", nargs="+", required=True, metavar="FOLDER[EXTRA,...]")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not those of the locks")
    given = parser.parse_args()
    # From the largest to the smallest, so that a distribution has one version in all.
    write("extras.txt", [*given.setup, *given.extras], upgrade=given.upgrade)
    write("setup.txt", given.setup, within="extras.txt", upgrade=True)
    write("others.txt", given.others, within="extras.txt", upgrade=given.upgrade)
    write("docs.txt", given.docs, within="extras.txt", upgrade=given.upgrade)
    # Not within: what reads metadata for PyPI has to know the newest form of them, and libraries hold it back.
    write("release.txt", given.release, upgrade=given.upgrade)
    write("pip.txt", [], needs=("pip",), upgrade=given.upgrade)
    return 0


def write(name: str, wanted: list[str], *, upgrade: bool, within: str = "", needs: Sequence[str] = ()) -> None:
    """Writes one lock.

    Args:
        name: of the file.
        wanted: folders of distributions, with extras in brackets: `plugins/trackers[wandb]`.
        upgrade: take the newest versions; otherwise those that the file has now, where they are still allowed.
        within: another lock, whose versions this one takes.
        needs: what else is wanted.
    """
    lock = LOCKS / name
    with tempfile.TemporaryDirectory() as folder:
        inputs = dict(needs_of(each) for each in wanted) | ({"Makefile": [*needs]} if needs else {})
        for label, lines in inputs.items():
            (Path(folder) / f"{label}.in").write_text("\n".join(lines), encoding="utf-8")
        (settings := Path(folder) / "uv.toml").write_text(TORCH)
        made = Path(folder) / name
        if lock.is_file() and not upgrade:
            made.write_text(lock.read_text(encoding="utf-8"))
        command = [
            str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet", "--config-file", str(settings),
            "--universal", "--python-version", OLDEST, "--fork-strategy", "fewest", "--generate-hashes", "--no-header",
            "--constraint", str(ROOT / "constraints.txt"),
        ]  # fmt: skip
        command += [part for each in OUTSIDE for part in ("--no-emit-package", each)]
        command += ["--constraint", str(LOCKS / within)] if within else []
        command += ["--output-file", name, *(f"{label}.in" for label in inputs)]
        if subprocess.run(command, cwd=folder, check=False).returncode:
            sys.exit(f"uv finds no versions for locks/{name}; what it says is above")
        lines = made.read_text(encoding="utf-8").splitlines()
    # uv also notes what it left out, and which other file each version is from.
    kept = [line for line in lines if line[:1] != "#" and not line.startswith("    #   -c ")]
    lock.write_text(HEAD + "\n".join(kept) + "\n", encoding="utf-8")
    print(f"wrote locks/{name}")


def needs_of(wanted: str) -> tuple[str, list[str]]:
    """A distribution with its extras, and what they need of others than fedplug's own."""
    path, _, extras = wanted.rstrip("]").partition("[")
    project = tomllib.loads((ROOT / path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"]]
    for extra in filter(None, extras.split(",")):
        needs += project["optional-dependencies"][extra]
    label = f"{project['name']}[{extras}]" if extras else project["name"]
    return label, [need for need in needs if not need.startswith("fedplug")]


if __name__ == "__main__":
    sys.exit(main())
