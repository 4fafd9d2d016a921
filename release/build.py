"""Builds the wheel and the sdist of every distribution of the project into dist/.

Those in plugins-contrib/ are examples of what others release.

Each is built from a copy of its folder. The copy gets LICENSE, which the repository has once, and a readme whose links
lead to the repository's address instead of to local files. The wheel is built from the unpacked sdist, so the sdist has
everything that a wheel needs.

    make dist
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
CORE = ("pyproject.toml", "README.md", "CHANGELOG.md", "core")
"""The files of the core's sdist. Its folder, the root, also has everything else."""
JUNK = shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache", ".hypothesis", "dist", "build")
_LINK = re.compile(r"(\]\(|\bsrc=\")(?![a-z]+:|#)([^)\"\s]+)")


def main() -> int:
    """Builds all, and lists dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for folder in folders():
        build(folder, DIST)
    files = sorted(DIST.iterdir())
    print(f"dist/ has {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
    return 0


def build(folder: Path, dist: Path) -> None:
    """Builds the sdist of the distribution in a folder, and the wheel from it."""
    with tempfile.TemporaryDirectory() as name:
        hatchling(stage(folder, Path(name) / "source"), "sdist", dist)
        about = project(folder)
        made = dist / f"{about['name'].replace('-', '_')}-{about['version']}.tar.gz"
        with tarfile.open(made) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.2 and 3.11.3 have none; the archive was made here
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(name)
        hatchling(Path(name) / made.name.removesuffix(".tar.gz"), "wheel", dist)


def folders() -> list[Path]:
    """The folders of the distributions, as seen from the root; that of the core is the root."""
    return [Path(), *sorted(path.parent.relative_to(ROOT) for path in ROOT.glob("plugins/*/pyproject.toml"))]


def project(folder: Path) -> dict[str, str]:
    """The table `project` of a distribution."""
    read: dict[str, str] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return read


def stage(folder: Path, place: Path) -> Path:
    """Copies the sources of a distribution. Links to folders become folders."""
    place.mkdir()
    for path in parts(folder):
        if path.is_dir():
            shutil.copytree(path, place / path.name, ignore=JUNK)
        else:
            shutil.copy(path, place / path.name)
    shutil.copy(ROOT / "LICENSE", place / "LICENSE")
    readme = place / "README.md"
    source: str = project(folder)["urls"]["Source"]  # type: ignore[index]
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), folder, source), encoding="utf-8")
    return place


def parts(folder: Path) -> Iterator[Path]:
    """The files and folders that a distribution is made of."""
    if folder == Path():
        yield from (ROOT / name for name in CORE)
    else:
        yield from (path for path in (ROOT / folder).iterdir() if not path.name.startswith("."))


def absolute(text: str, folder: Path, source: str) -> str:
    """A readme in which links to files lead to the repository's address, and pictures are fetched there.

    Args:
        text: of the readme.
        folder: where it is in the repository.
        source: the repository's address.

    Raises:
        SystemExit: the target of a link does not exist.
    """

    def there(match: re.Match[str]) -> str:
        path, hash, part = match[2].partition("#")
        target = (ROOT / folder / path).resolve()
        if not target.exists():
            sys.exit(f"{folder / 'README.md'}: there is no {path}")
        kind = "raw" if "src" in match[1] else "blob"
        return f"{match[1]}{source}/{kind}/main/{target.relative_to(ROOT).as_posix()}{hash}{part}"

    return _LINK.sub(there, text)


def hatchling(source: Path, target: str, dist: Path) -> None:
    """Builds one archive with the back end of this environment."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(dist)]
    if (done := subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)).returncode:
        sys.exit(f"{source}: {target}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
