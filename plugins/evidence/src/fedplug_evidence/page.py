"""The page of a folder of evidence: who is kept out, what was attacked, what is not protected, and all that follows.

Every byte follows from the other files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedplug_lab.api import (
    bullets,
    glossary,
    legend,
    page_html,
    sentence,
    table,
    text,
    verdict_glance,
    verdict_lines,
    zone_label,
)
from fedplug_ledger.entries import RoundEntry, ZoneEntry
from fedplug_ledger.grades import PARTIES, quoted
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_ledger.verdict import Line
from fedplug_ledger.verdict_words import named
from fedplug_runs import units

from fedplug_evidence.attacked import STYLE as ATTACKED
from fedplug_evidence.attacked import attacked, attacked_short
from fedplug_evidence.facts import Contents, charged
from fedplug_evidence.picture import STYLE, draw
from fedplug_evidence.rebuilt import data_files
from fedplug_evidence.sites import Tried, untried

_FEW = 0.99
"""If a ciphertext does not compress, its size after zlib is at least this share of its bytes."""
_PRINT = """
@media print { .pan { overflow: visible; break-inside: avoid; } .round { min-width: 0; } section { break-inside: auto; }
  .unprotected { border: 2px solid #000; background: none; } }
.unprotected h2 { border: 0; margin: 0 0 .4rem; padding: 0; }
"""


def render(contents: Contents) -> str:
    """The page. It loads nothing and runs no script."""
    facts = contents.facts
    digest = f'digest <code title="{text(facts.digest)}">{text(facts.digest[:16])}</code>'
    byline = (
        f'<p class="byline">{units.many(facts.rounds, "round")} · {units.many(facts.clients, "client")} · made '
        f'{text(facts.made)}<span class="digest"> · {digest}</span></p>'
    )
    verdict = contents.ledger.verdict
    top = [
        attacked_short(contents.attacks, verdict, contents.sites, facts.clients),
        verdict_glance(verdict),
        attacked(contents.attacks, verdict, contents.sites, facts.clients),
        _unprotected(contents),
        '<section class="verdict" aria-labelledby="why"><h2 id="why">What each party sees, and why</h2>'
        f"{verdict_lines(verdict, facts.clients)}{glossary()}</section>",
    ]
    sections = [
        ("picture", "A round, with a lock for each party", _picture(contents)),
        ("seen", "Who could see what", _seen(contents)),
        ("sent", "What was sent", _sent(contents)),
        ("ledger", "The ledger by party, with every charge", _ledger(contents)),
        ("attacks", "Attacks that were tried", _attacks(contents)),
        *([("released", "What was released", _released(facts.released))] if facts.released else []),
        ("ran", "What ran", _what_ran(contents)),
        ("check", "How to check this folder", _how_to_check()),
    ]
    return page_html("evidence", facts.name, byline, top, sections, STYLE + ATTACKED + _PRINT)


# ---- what is not protected


def _unprotected(contents: Contents) -> str:
    items = [*map(sentence, unprotected(contents))]
    return (
        '<section class="banner unprotected" aria-labelledby="unprotected"><h2 id="unprotected">What is not protected'
        f"</h2>{bullets(items)}</section>"
    )


def unprotected(contents: Contents) -> Iterator[str]:
    """Sentences on what is not protected and what nobody checked, the most serious first."""
    ledger, sent = contents.ledger, contents.sent
    yield from _open_to(ledger.verdict.lines)
    if found := sent.compared and sent.compared.found:
        for zone, places in found.items():
            yield f"PLAIN VALUES WERE FOUND: values of the {zone} zone, at {places} places in clients' messages."
    if wrong := [closed for closed in sent.closed if closed.repeated]:
        for closed in wrong:
            yield f"{closed.repeated} ciphertexts of the {closed.zone} zone repeat the bytes of earlier ciphertexts."
    for zone, kept in ledger.zones.items():
        if kept.rounds_without_noise and not kept.encrypted:
            share = units.percent(kept.largest_share)
            yield f"The {zone} zone ({share} of the model) was sent unprotected in {kept.rounds_without_noise} rounds."
    for shown in ledger.reveals:
        if shown.covered_by is None:
            whom = named(PARTIES[party] for party in shown.to)
            note = f" ({shown.note})" if shown.note else ""
            yield f"No epsilon covers this, which {whom} can see: {shown.what}{note}."
    yield from (f"No component states what this reveals: {what}." for what in ledger.uncovered_messages)
    yield from (f"{warning[:1].upper()}{warning[1:]}." for warning in ledger.warnings)
    yield f"Never covered, whatever the recipe: {'; '.join(ledger.never_covered)}."
    yield (
        "This page assumes that each party follows the protocol and only looks at what it receives. It does not cover "
        "parties that alter messages or lie."
    )
    if not sent.recorded:
        yield "The messages were not recorded, so this page says nothing about the bytes of ciphertexts."
    if sent.compared is None:
        yield "Not checked: whether messages contain plain values. No client compared them."
    if not contents.attacks.tried:
        left = untried(contents.sites, contents.facts.clients)
        if not contents.sites:
            yield "No attack was tried."
        elif left:
            yield f"Nobody attacked {left}."


def _open_to(lines: Sequence[Line]) -> Iterator[str]:
    """The parties without a guarantee for a client that counts; those with the same reason together."""
    alike: dict[str, list[Line]] = {}
    for line in lines:
        if line.state in ("none", "beyond"):
            alike.setdefault(line.detail or line.reason, []).append(line)
    for why, its in alike.items():
        they = "They see" if len(its) > 1 or its[0].who[:1].isdigit() else "It sees"  # "5 clients together"
        said = f"{they}{why.removeprefix('sees')}" if why.startswith("sees ") else f"The reason: {why}"
        who = named((line.who for line in its), "or")
        yield f"No useful guarantee limits what {who} can learn about a client. {said}."
    parts: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.state == "guaranteed" and line.unit != "client":
            parts.setdefault((line.unit, line.detail), []).append(line)
    for (unit, why), its in parts.items():
        yield (
            f"No useful guarantee limits what {named((line.who for line in its), 'or')} can learn about a client as a "
            f"whole. The guarantee is for each {unit}: {why}."
        )
    for line in lines:
        if line.weak and line.unit == "client":
            yield f"Only a weak guarantee limits what {line.who} can learn about a client: {line.terms}."


def _released(lines: Sequence[str]) -> str:
    said = "Who receives the result of the run receives this. The run computed it; the check of this folder does not."
    return f"<p>{sentence(said)}</p><pre>{text(chr(10).join(lines))}</pre>"


# ---- the picture, and who sees what


def _picture(contents: Contents) -> str:
    ways: dict[str, dict[str, int]] = {}
    for way in contents.ways:
        zones = ways.setdefault(way.way, {})
        zones[way.zone] = zones.get(way.zone, 0) + way.bytes
    verdict = contents.ledger.verdict
    if not verdict.lines:
        return ""
    locks = legend(verdict.lines)
    caption = f"The bytes are totals over all rounds and clients. {locks[:1].upper()}{locks[1:]}"
    return f'<div class="pan" tabindex="0">{draw(verdict, ways)}</div><p class="note">{sentence(caption)}</p>'


def _seen(contents: Contents) -> str:
    ledger, body = contents.ledger, []
    for line in ledger.verdict.lines:
        besides = [shown.what for shown in ledger.reveals if _looks_for(line.party) & {*shown.to}]
        also = sentence(", ".join(dict.fromkeys([*besides, *line.not_covered]))) or units.NOTHING
        body.append([text(line.who), sentence(line.detail or line.reason), also])
    seen = table("By party.", ["who", "sees, in full", "also sees"], body)
    closed = [
        [zone_label(zone), text(kept.component), sentence(kept.parameters), sentence(_opener(kept)),
         "yes" if kept.sums_seen_by_server else "no"]
        for zone, kept in ledger.encryption.items()
    ]  # fmt: skip
    header = ["zone", "by", "parameters", "who can decrypt it", "server sees decrypted sums"]
    return seen + table("The encryption of each encrypted zone.", header, closed)


def _looks_for(party: str) -> set[str]:
    """Whose views a party has: colluding parties share theirs, and everybody sees published values."""
    together = {"server", "client"} if party == "client_and_server" else set()
    return {party, "released_model", *together}


def _opener(closed: EncryptionReport) -> str:
    several = f"{closed.opens_with} clients together" if closed.opens_with > 1 else "every client"
    words = {"clients": "every client", "key_server": "the key server", "shares": several}
    return words.get(closed.key_holder, closed.key_holder)


# ---- what was sent


def _sent(contents: Contents) -> str:
    sent, ways = contents.sent, contents.ways
    titles = {"up": "from clients", "down": "to clients", "key_server": "to and from the key server"}
    zones = list(dict.fromkeys(way.zone for way in ways))
    body = []
    for zone in zones:
        sums = [sum(way.bytes for way in ways if (way.zone, way.way) == (zone, name)) for name in titles]
        label = zone_label(zone) if zone != "other" else "no zone (questions, ballots, headers)"
        body.append([label, *(text(units.size(size)) if size else units.NOTHING for size in sums)])
    caption = "Bytes by zone, over all rounds and clients. messages.csv lists them by round."
    parts = [table(caption, ["zone", *titles.values()], body, numeric=1), _compared(contents)]
    if not sent.recorded:
        parts.append(
            "<h3>Ciphertexts</h3><p><strong>Not recorded.</strong> This run kept no messages, so their bytes could not "
            "be checked. Run the recipe again with <code>--record-wire</code> and make evidence of that run.</p>"
        )
        return "".join(parts)
    parts.append(
        f"<h3>Ciphertexts</h3><p>{sent.messages} messages of {text(units.size(sent.bytes))} were recorded, "
        f"{sent.answers} of them from clients to the server.</p>"
    )
    encrypted = contents.ledger.encryption
    body = [
        [
            zone_label(closed.zone),
            f"<code>{text(closed.sealed_by)}</code>"
            + ("" if closed.zone in encrypted else "<br>scrambled: the server can read it"),
            str(closed.uploads), str(closed.pieces), text(units.size(closed.bytes)),
            f"{'no' if closed.least >= _FEW else '<strong>yes</strong>'}: at least {closed.least:.4f}",
            f"{closed.entropy:.3f} of {closed.random:.3f}",
            "<strong>no</strong>: " + str(closed.repeated) + " repeat" if closed.repeated else "yes, all",
        ]
        for closed in sent.closed
    ]  # fmt: skip
    caption = (
        "Ciphertexts in uploads. A ciphertext that zlib does not shrink below 0.99 of its size does not compress, as "
        "expected of encryption. Entropy is in bits per byte, compared with that of random bytes. Neither proves that "
        "the encryption is secure. Different: no ciphertext has the same bytes as another one of any client or round."
    )
    header = ["zone", "by", "uploads", "ciphertexts", "bytes", "compress", "entropy", "different"]
    parts.append(table(caption, header, body) or "<p>No upload contained ciphertexts.</p>")
    body = [[zone_label(zone), str(count), sentence(_as_sent(contents, zone))] for zone, count in sent.values.items()]
    parts.append(table("Zones that were uploaded as values.", ["zone", "values", "protection"], body))
    return "".join(parts)


def _as_sent(contents: Contents, zone: str) -> str:
    kept = contents.ledger.zones.get(zone)
    if kept is None or not kept.rounds_with_noise:
        return "none: nothing hides these values"
    noise = " and ".join(dict.fromkeys(kept.mechanism))
    if "central" in contents.ledger.trust and all(
        entry.zones[zone].local is None for entry in contents.ledger.log if zone in entry.zones
    ):
        return f"none at the client: the trusted server adds {noise} noise to the sum"
    return f"{noise} noise" + ("" if not kept.rounds_without_noise else ", but none in some rounds")


def _compared(contents: Contents) -> str:
    sent = contents.sent
    head = "<h3>Plain values in clients' messages</h3>"
    if sent.compared is None:
        return (
            f"{head}<p><strong>Not checked.</strong> Clients look for plain values in their messages only while a run "
            "is recorded. Run the recipe again with <code>--record-wire</code>.</p>"
        )
    said = sent.compared
    asked, found = sum(said.values.values()), sum(said.found.values())
    of = f" of {sent.answers}" if sent.recorded else ""
    line = f"Compared at the client: {asked} values, {said.messages}{of} messages, {found} found."
    body = [[zone_label(zone), str(count), str(said.found.get(zone, 0))] for zone, count in said.values.items()]
    note = (
        "Each client looked in its messages for the values of the zones that it hides itself (encrypted, noised, "
        "kept). It looked at any byte offset and in both byte orders, for two neighbours in float32 or one value in "
        "float64. It left out zeros and round numbers. This check does not find values that are scaled or rounded "
        "before they are sent. Messages of the set-up, of rounds in which a client uploaded nothing, and after the "
        "last round do not count, because there are no values to compare them with."
    )
    if not said.values:
        line = "Compared at the client: clients hide no zone, so there was nothing to look for."
    result = f"<p><strong>{sentence(line)}</strong></p>"
    values = table("Values that were looked for.", ["zone", "values", "found at"], body, numeric=1)
    return f'{head}{result}{values}<p class="note">{sentence(note)}</p>'


# ---- the ledger


def _ledger(contents: Contents) -> str:
    ledger = contents.ledger
    body = [[f"<b>{text(line.who)}</b>", *_epsilons(line)] for line in ledger.verdict.lines]
    header = ["party", "guarantee", "epsilon, add-or-remove", "epsilon, replace-one", "delta"]
    parts = [table("Privacy cost by party: epsilon of the worst client.", header, body)]
    rows = [
        _charge(rounds, entry, zone, facts) for rounds, entry in _alike(contents) for zone, facts in entry.zones.items()
    ]
    header = ["rounds", "charged", "zone", "scalars", "noise", "multiplier", "in the sum", "source"]
    parts.append(
        table(
            "Every charge. Consecutive rounds that are alike share one line; charges.csv has a line for each. A "
            "multiplier is the size of the noise divided by the bound on one client. The column “in the sum” says how "
            "many times larger it is in the sum.",
            header, rows,
        )
    )  # fmt: skip
    parts.append(f"<p>{sentence(_who_paid(contents))}</p>")
    for level, kept in ledger.levels.items():
        told = f"Level {level}: {kept.unit}; {kept.covers}; epsilon {units.number(quoted(kept.epsilons))}."
        parts.append(f"<p>{sentence(told)}</p>")
    return "".join(parts)


def _epsilons(line: Line) -> list[str]:
    if line.epsilons is None:
        stated = units.number(line.value) if line.value is not None else units.NOTHING
        return [sentence(line.guarantee), text(stated), units.NOTHING, f"{line.delta:g}"]
    both = (line.epsilons.zero_out, line.epsilons.replace_one)
    shown = [
        "<br>".join(f"{text(_method(name))} {text(units.number(value))}" for name, value in each.items())
        for each in both
    ]
    return [sentence(line.guarantee), *shown, f"{line.delta:g}"]


def _method(name: str) -> str:
    words = {
        "epsilon_exact": "exact", "epsilon_rdp": "by Rényi DP", "epsilon_pld": "by loss distributions",
        "epsilon_without_sampling": "without credit for sampling",
    }  # fmt: skip
    return words.get(name, name.replace("_", " "))


def _alike(contents: Contents) -> Iterator[tuple[str, RoundEntry]]:
    """Consecutive entries of the log that differ only in their round, with the rounds in words."""
    plain = [({**entry.to_plain(), "round": 0}, entry) for entry in contents.charges.log]
    for _, group in itertools.groupby(plain, key=lambda pair: pair[0]):
        entries = [entry for _, entry in group]
        first, last = entries[0].round, entries[-1].round
        several = f"{first} to {last}" if last - first == len(entries) - 1 else f"{first}: {len(entries)} times"
        yield (str(first) if len(entries) == 1 else several), entries[0]


def _charge(rounds: str, entry: RoundEntry, zone: str, facts: ZoneEntry) -> list[str]:
    noise = " + ".join(f"{release.mechanism} ({release.trust})" for release in facts.releases) or "none"
    if facts.other is not None:
        numbers = units.number(facts.other[1])
    else:
        given = [facts.local, facts.central]
        numbers = " and ".join(units.number(number) for number in given if number is not None) or units.NOTHING
    source = ", ".join(dict.fromkeys(release.source for release in facts.releases)) or units.NOTHING
    credited = facts.sum_factor is not None and not facts.is_bare and facts.other is None
    factor = units.number(facts.sum_factor) if credited else units.NOTHING
    paid = {"all": "all clients", "secret": "secret"}.get(charged(entry), charged(entry))
    return [
        text(rounds),
        text(paid),
        zone_label(zone),
        f"{facts.size:.6g}",
        text(noise),
        text(numbers),
        text(factor),
        text(source),
    ]


def _who_paid(contents: Contents) -> str:
    """How often each client was charged."""
    charges = contents.charges
    if any(entry.charged == "secret" for entry in charges.log):
        return (
            "Participation is secret: no file of this folder names a client, and every figure holds for each client."
        )
    counts = [0] * charges.clients
    for entry in charges.log:
        for client in range(charges.clients) if isinstance(entry.charged, str) else entry.charged:
            counts[client] += 1
    if len(set(counts)) == 1:
        who = "The client" if charges.clients == 1 else f"Each of {charges.clients} clients"
        return f"{who} was charged {units.many(counts[0], 'time')}."
    each = ", ".join(f"{client}: {count}" for client, count in enumerate(counts))
    return f"How often each client was charged: {each}."


# ---- attacks, and what ran


def _attacks(contents: Contents) -> str:
    attacks = contents.attacks
    said = "<p>The recipe names attacks that were not run, or not completed.</p>" if attacks.awaited else ""
    if attacks.tried:
        said += _results("", attacks.tried)
    elif not contents.sites:
        return (
            f"{said}<p><strong>None was tried.</strong> This says nothing about what an attack would achieve. "
            "<code>fedplug attack RUN</code> runs attacks on a run with recorded messages. If parties are elsewhere, "
            "each site attacks its own uploads: <code>fedplug party ... --attack</code>.</p>"
        )
    for signed in contents.sites:
        report = signed.report
        rounds = f", round {named(map(str, report.rounds))}" if report.rounds else ""
        versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
        by = f"Tried by site {report.client} on its own uploads{rounds}, on that site's word ({report.made}; {versions}"
        by += "). "
        said += _results(by, report.tried) if report.tried else f"<p>{text(by)}No attack applied.</p>"
    return said


def _results(by: str, tried: Sequence[Tried]) -> str:
    """A table of results; `by` says who tried."""
    body = []
    for one in tried:
        worse = "smaller is worse" if one.lower_is_worse else "larger is worse"
        guess = "none" if one.guess is None else f"{_number(one.guess)} ({text(one.guessed_by)})"
        share = "it did not apply" if one.succeeded is None else text(units.percent(one.succeeded))
        share += f"; {text(one.state)} over all" if one.state and one.succeeded is not None else ""
        judged = f"{text(one.metric)}; {worse}"
        body.append([text(one.attack), judged, _number(one.value), guess, share, str(one.targets)])
    caption = (
        f"{by}The result of each attack in its stronger form, as the mean over targets, compared with the best guess "
        "without any messages. An attack that fails proves nothing about stronger attacks."
    )
    header = ["attack and adversary", "metric", "result", "best guess without messages", "successes", "targets"]
    return table(caption, header, body)


def _number(value: float | None) -> str:
    return units.NOTHING if value is None else text(f"{value:.3g}")


def _what_ran(contents: Contents) -> str:
    facts, versions = contents.facts, contents.versions
    rows: list[tuple[str, Any]] = [
        ("digest of the recipe, SHA-256", f"<code>{text(facts.digest)}</code>"),
        ("engine", text(facts.engine)), ("device", text(facts.device)),
        ("parameters of the model", f"{facts.parameters}"), ("resumed", "yes" if facts.resumed else "no"),
    ]  # fmt: skip
    listed = "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in rows)
    plan = [
        [f"<code>{text(hook)}</code>", f"<code>{text(name)}</code>", sentence(does)] for hook, name, does in facts.plan
    ]

    def by_name(caption: str, header: Sequence[str], found: Mapping[str, str]) -> str:
        return table(caption, header, [[f"<code>{text(each)}</code>" for each in pair] for pair in found.items()])

    return "".join(
        [
            f'<dl class="facts">{listed}</dl>',
            table("The hooks of a round, in order.", ["hook", "component", "description"], plan),
            by_name("Versions that the run recorded.", ["distribution", "version"], versions.run),
            by_name("SHA-256 of each of the user's own code and component files that the recipe names.",
                    ["file", "SHA-256"], contents.own_files.sha256)
            or "<p>The recipe names none of the user's own code or component files.</p>",
            f"<p>{sentence(_data_named(contents))}</p>",
            "<details><summary>Versions of all dependencies, as installed when this page was made</summary>",
            by_name("They may differ from those during the run.", ["distribution", "version"], versions.made),
            "</details>",
            f"<details><summary>Resolved recipe</summary><pre><code>{text(contents.written)}</code></pre></details>",
        ]
    )


def _data_named(contents: Contents) -> str:
    """The data files that the recipe names, and why no digest of them is here."""
    data, names = contents.recipe.get("data"), data_files(contents.recipe)
    at_sites = isinstance(data, Mapping) and data.get("at") == "sites"
    if not names and not at_sites:
        return "The recipe names no data file."
    one = len(names) == 1 and not at_sites
    which = "Each site read its own data"
    if not at_sites:
        which = f"The recipe names the data file{'' if one else 's'} {named(names)}"
    return (
        f"{which}. This evidence contains neither "
        f"{'the file nor its digest' if one else 'the files nor their digests'}: with a digest, "
        "anyone who can guess a file can confirm the guess."
    )


def _how_to_check() -> str:
    return (
        "<p><code>fedplug verify FOLDER --signer KEY</code> checks the SHA-256 and the size of every file and the "
        "signature (Ed25519) over that list. It recomputes the ledger from the charges, and checks that this page "
        "follows from the other files. It needs fedplug, fedplug-lab and fedplug-evidence, but neither data nor torch. "
        "<code>KEY</code> is the signer's public key. Get it from the signer, not from this folder. Without it, the "
        "signature shows only that nothing has changed since somebody signed the folder.</p>"
    )
