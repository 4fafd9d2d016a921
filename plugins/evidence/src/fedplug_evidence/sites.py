"""Reports of sites that attacked their own uploads: a file of figures, signed at the site, without any example.

The site writes it (`fedplug party --attack`). `fedplug evidence RUN --site FILE` puts it into the evidence unchanged.
Nobody else can repeat these attacks, so they count on the word of the site.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import SetupError
from fedplug.api.records import Count, Number, Record, Text, one_line
from fedplug_lab.api import sections_of_plugins
from fedplug_ledger.verdict_words import named
from fedplug_runs.files import write_bytes
from fedplug_runs.units import many

from fedplug_evidence.keys import fingerprint, own_key, public_bytes, signs
from fedplug_evidence.manifest import canonical
from fedplug_evidence.strict import read_json

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe

REPORT = "leakage.json"
"""The name of the file at the site."""
LARGEST = 2**20
"""The largest size of such a file in bytes."""
_PURPOSE = b"fedplug site report 1\n"
"""A prefix of the signed bytes. With it, no signature over something else counts here."""
_FILE = re.compile(r"site-(0|[1-9][0-9]{0,8})\.json")
_ROUND = re.compile(r" (after )?round [0-9]+")
_STATES = ("", "success", "failed", "inconclusive", "not_applicable")
_VERSIONS = ("fedplug", "fedplug-attacks", "fedplug-evidence", "fedplug-party", "numpy", "torch")


class Tried(Record):
    """The result of one attack by one adversary in its stronger form, as in `fedplug_lab.sections.Leak`.

    `adversary`, `who` and `state` are empty in folders that were made before they were kept.
    """

    attack: Text
    metric: Text
    value: Number | None
    guess: Number | None
    guessed_by: Text
    lower_is_worse: bool
    succeeded: Number | None
    targets: Count
    adversary: Text = ""
    who: Text = ""
    state: Text = ""

    @property
    def worked(self) -> bool:
        """Whether it succeeded, by all targets together where that is known."""
        return self.state == "success" if self.state else bool(self.succeeded)


def tried_on(folder: Path) -> list[Tried]:
    """The results of attacks in a folder, from the sections of plugins."""
    return [
        Tried(**{field.name: getattr(leak, field.name) for field in dataclasses.fields(Tried)})
        for section in sections_of_plugins() for leak in section.leaks(section.record(folder))
    ]  # fmt: skip


def conclusion_on(folder: Path, tried: Sequence[Tried]) -> str:
    """The conclusion from the attacks in a folder; empty if none applied, since the reasons may tell of the data."""
    if all(one.succeeded is None for one in tried):
        return ""
    return " ".join(said[1] for section in sections_of_plugins() if (said := section.headline(folder)))


class SiteReport(Record, frozen=True):
    """The figures of one site.

    Attributes:
        recipe: the digest of the recipe.
        run: the identity of the run, as the server drew it.
        client: the number of the client.
        rounds: the attacked rounds, from 1; empty if nobody may know in which rounds a client took part.
        tried: each attack and adversary.
        left_out: who or what was not attacked, each with the reason.
        versions: of the programs that attacked.
        made: the day, UTC.
        found: the conclusion from all attacks, in sentences; empty if none applied.
    """

    recipe: Text
    run: Text
    client: Count
    rounds: list[Count]
    tried: list[Tried]
    left_out: list[tuple[Text, Text]]
    versions: dict[Text, Text]
    made: Text
    found: Text = ""


@dataclasses.dataclass(frozen=True)
class Signed:
    """A report as its site signed it.

    Attributes:
        report: the figures.
        public: the key that signed, 32 bytes.
        data: the bytes of the file.
    """

    report: SiteReport
    public: bytes
    data: bytes

    @property
    def name(self) -> str:
        """The name of its file in a folder of evidence."""
        return f"site-{self.report.client}.json"


def site_report(
    folder: Path, recipe: Recipe, run: str, client: int, made: Any, key: Path | None, said: Callable[[str], None]
) -> Path:
    """Signs the results of a site's attacks and writes them to `leakage.json`; the service `site_report`.

    Args:
        folder: with the results, where the file is written.
        recipe: of the run.
        run: its identity.
        client: the number of the client.
        made: has `rounds` and `left_out`, as in `SiteReport`.
        key: the file of the Ed25519 key that signs; None: the user's key, which is created if there is none.
        said: receives lines for people, first on what the file will contain.

    Raises:
        SetupError: the key cannot be used, or the file cannot be written.
    """
    tried, rounds = [_rounded(one) for one in tried_on(folder)], list(made.rounds)
    left_out = [(str(who), str(why).replace(f"{folder}{os.sep}", "")) for who, why in made.left_out]
    found = conclusion_on(folder, tried)
    if recipe.sampling is not None:  # the guarantee may rest on nobody knowing who took part when
        tried = [dataclasses.replace(one, attack=_ROUND.sub("", one.attack)) for one in tried]
        left_out = [(_ROUND.sub("", who).removesuffix(","), _ROUND.sub(" the round", why)) for who, why in left_out]
        rounds, found = [], _ROUND.sub("", found)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    report = SiteReport(recipe.digest, run, client, rounds, tried, left_out, _versions(), today, found)
    file = folder / REPORT
    said("")
    for line in contents_of(report, file):
        said(line)
    signer, made_key = own_key(key)
    try:
        write_bytes(file, _sealed(report, public_bytes(signer), signer.sign(_PURPOSE + _body(report))))
    except OSError as error:
        raise SetupError(f"{file} cannot be written ({error.strerror or error}); make room or access there") from error
    if made_key is not None:
        said(f"created your signing key {made_key}")
    said(f"wrote {file}, signed by {fingerprint(public_bytes(signer))}, public key {public_bytes(signer).hex()}")
    said(f"give it to the operator of the server, who adds it with: fedplug evidence RUN --site {file.name}")
    return file


def contents_of(report: SiteReport, file: Path) -> Iterator[str]:
    """What a file contains, for the owner of the site, before it is written."""
    yield f"{file} will contain figures and sentences only, no example, picture or label of this site:"
    yield f"  the recipe's digest {report.recipe[:12]}, run {report.run}, client {report.client}, the day, versions"
    if report.rounds:
        yield f"  the attacked rounds: {', '.join(map(str, report.rounds))}"
    for one in report.tried:
        share = "did not apply" if one.succeeded is None else f"{one.succeeded:.0%} of {many(one.targets, 'target')}"
        guess = "" if one.guess is None else f" (a guess has {one.guess:.3g})"
        number = "" if one.value is None else f", {one.metric} {one.value:.3g}{guess}"
        yield f"  {one.attack}: {share}{number}"
    yield from (f"  not attacked: {who}: {why}" for who, why in report.left_out)
    if report.found:
        yield f"  {report.found}"
    yield "These figures follow from the site's examples, and no noise covers them."


def _rounded(one: Tried) -> Tried:
    """The numbers as the owner sees them: all digits would confirm a guess of the examples that they follow from."""
    value, guess = (None if number is None else float(f"{number:.3g}") for number in (one.value, one.guess))
    return dataclasses.replace(one, value=value, guess=guess)


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _body(report: SiteReport) -> bytes:
    return canonical(report.to_plain(for_json=True))


def _sealed(report: SiteReport, public: bytes, signature: bytes) -> bytes:
    return canonical({
        "report": report.to_plain(for_json=True), "algorithm": "Ed25519", "public_key": public.hex(),
        "signature": signature.hex(),
    })  # fmt: skip


def read_signed(data: bytes, name: str) -> Signed:
    """A report from the bytes of its file. `name` is for messages.

    Raises:
        SetupError: it is not a report as fedplug writes it, or its signature does not fit.
    """
    remedy = "use the file as the site wrote it, or ask the site for a new one: fedplug party RECIPE ... --attack"
    try:
        if len(data) > LARGEST:
            raise ValueError(f"it has {len(data)} bytes, and a report has at most {LARGEST}")
        plain = read_json(data)
        if not isinstance(plain, dict) or "report" not in plain:
            raise ValueError("it has no report")
        report = SiteReport.from_plain(plain["report"])
        for one in report.tried:
            if one.succeeded is not None and not 0 <= one.succeeded <= 1:
                raise ValueError(f"{one.succeeded} is not a share of targets, from 0 to 1")
            if one.state not in _STATES:
                raise ValueError(f"{one.state!r} is not the outcome of an attack")
        public, signature = bytes.fromhex(plain["public_key"]), bytes.fromhex(plain["signature"])
        if _sealed(report, public, signature) != data:
            raise ValueError("it is not in the form that fedplug writes")
    except (ValueError, TypeError, KeyError) as error:
        raise SetupError(f"{name}: not the report of a site ({one_line(str(error), 200)}); {remedy}") from error
    if not signs(public, signature, _PURPOSE + _body(report)):
        raise SetupError(f"{name}: the signature does not fit, so the file was changed after it was signed; {remedy}")
    return Signed(report, public, data)


def read_reports(files: Sequence[Path]) -> tuple[dict[Path, Signed], list[str]]:
    """The report in each file, in the order of clients; and the files that cannot be read, are no report, or are the
    second of a client, each with the reason.
    """
    found, problems = dict[int, tuple[Path, Signed]](), list[str]()
    for file in files:
        try:
            with open(file, "rb") as opened:
                signed = read_signed(opened.read(LARGEST + 1), f"--site {file}")
        except OSError as error:
            problems.append(f"--site {file}: it cannot be read ({error.strerror or error}); name the file of a site")
            continue
        except SetupError as error:
            problems.append(str(error))
            continue
        before = found.setdefault(signed.report.client, (file, signed))
        if before[0] is not file:
            whose = f"{before[0]} is of client {signed.report.client} too"
            problems.append(f"--site {file}: {whose}; name one file for each client")
    return {file: signed for _, (file, signed) in sorted(found.items())}, problems


def in_folder(files: Mapping[str, bytes]) -> tuple[Signed, ...]:
    """The reports in a folder of evidence, by client.

    Raises:
        SetupError: a file is not a report as fedplug writes it, or has the name of another client.
    """
    found = []
    for name in filter(is_report, files):
        signed = read_signed(files[name], name)
        if signed.name != name:
            raise SetupError(f"{name}: it is the report of client {signed.report.client}")
        found.append(signed)
    return tuple(sorted(found, key=lambda signed: signed.report.client))


def is_report(name: str) -> bool:
    """Whether a file of evidence has the name of a site's report."""
    return _FILE.fullmatch(name) is not None


def strangers(sites: Sequence[Signed], recipe: str, run: str, clients: int) -> Iterator[tuple[Signed, str]]:
    """Reports that do not belong to a run, each with the reason.

    Args:
        sites: the reports.
        recipe: the digest of the run's recipe.
        run: the identity of the run.
        clients: their number.
    """
    for signed in sites:
        report = signed.report
        if report.recipe != recipe:
            yield signed, f"it is of recipe {one_line(report.recipe[:12])}, and the run is of {recipe[:12]}"
        elif not run or report.run != run:
            this = f"this is run {run}" if run else "this run has no parties elsewhere"
            yield signed, f"it is of run {one_line(report.run[:40])}, and {this}"
        elif report.client >= clients:
            yield signed, f"it is of client {report.client}, and the run has the clients 0 to {clients - 1}"


def untried(sites: Sequence[Signed], clients: int, counts: Callable[[Tried], bool] = lambda one: True) -> str:
    """The clients that no attack of their sites applied to, in words; empty if there are none.

    Args:
        sites: the reports.
        clients: their number.
        counts: which attacks count; by default all.
    """
    made = ((each.report.client, one) for each in sites for one in each.report.tried if one.succeeded is not None)
    applied = {client for client, one in made if counts(one)}
    left = [each for each in range(clients) if each not in applied]
    if len(left) == clients or not left:
        return "" if not left else f"any of the {many(clients, 'client')}"
    if len(left) > 20:
        return f"the other {many(len(left), 'client')}"
    return f"client{'' if len(left) == 1 else 's'} {named(map(str, left))}"
