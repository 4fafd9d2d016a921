"""The pages of the documentation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("plugins-contrib/*/README.md"),
    ]
)
FENCE = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PROGRAMS = (
    "fedplug", "python", "make", "pip", "cd", "ray", "flwr", "flower-superlink", "flower-supernode", "ssh-keygen",
    "mlflow", "tensorboard", "wandb",
)  # fmt: skip
"""The first words of lines that are commands."""
NOT_RUN = {
    r"make (run|test)\b": "it sets up the environment that the tests run in, and these are among the tests",
    r"pip install ": "it changes that environment",
    r"python \S*benchmarks/": "it measures for minutes to hours",
    r"fedplug attack --update ": "plugins/attacks/tests/test_logged.py attacks such files",
    r"python docs/": "it writes pages or draws pictures from runs that take hours; their tests are in test_draw.py and "
    "test_docs_pages.py",
    r".* RUN\b|.*/FILE\b|.* DIR\b": "it has a name for whatever the reader puts there",
    r"ray |.*--engine ray": "it needs processes of Ray, or other machines; plugins/ray has the tests",
    r"fedplug (party|federation-\w+) |.*--engine parties|flwr |flower-|ssh-keygen ": "it needs a federation, "
    "or other machines; plugins/party and plugins/flower have the tests",
    r".*\b(gpt-(base|lora)|secagg-distributed|public-features)": "it trains for minutes; test_recipes.py runs these "
    "recipes small",
    r"fedplug audit ": "it accuses a right protocol once in twenty times, as its page says; plugins/audit has tests",
    r"fedplug show ray\b": "the engine is a library that most people do without",
    r"mlflow |tensorboard |wandb ": "it serves pages for a browser, or needs an account",
}
"""Commands on the pages that no test runs, with the reason."""


@dataclasses.dataclass(frozen=True)
class Commands:
    """Commands that a page shows without their output, one below the other."""

    page: Path
    line: int
    commands: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def plain_commands(page: Path) -> Iterator[Commands]:
    """The commands of a page's indented blocks and blocks of text. Those in one block run one after the other."""
    text = page.read_text(encoding="utf-8")
    # Treats blocks of text as indented and removes other fenced ones. Lines keep their numbers.
    plain = FENCE.sub(lambda block: _indented(block[0]) if block[2] == "text" else "\n" * block[0].count("\n"), text)
    for block in re.finditer(r"(?:^ {4,}\S.*\n)+", plain, re.MULTILINE):
        lines = re.sub(r"\s*\\\n\s+", " ", block[0]).splitlines()
        commands = tuple(found for found in map(_command, lines) if found)
        if commands:
            yield Commands(page, plain.count("\n", 0, block.start()) + 1, commands)


def _indented(block: str) -> str:
    return "".join("\n" if line.startswith(("```", "<!--")) else f"    {line}\n" for line in block.splitlines())


def _command(line: str) -> str | None:
    """The command that a line gives the shell; None where it is not a command."""
    command = re.sub(r"^(\$ )?([A-Z_]+=\S+ )*", "", line.strip())
    command = re.sub(r"(\s+# .*|\s{3,}\S.*|\s+&)$", "", command)
    return command if command.partition(" ")[0] in PROGRAMS else None
