"""What was attacked, and what nobody tried: the first thing that a reviewer asks after who is kept out."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from fedplug_lab.api import sentence, text
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.verdict_words import named
from fedplug_runs import units

from fedplug_evidence.facts import Attacks
from fedplug_evidence.keys import fingerprint
from fedplug_evidence.sites import Signed, Tried, untried

STYLE = """
.tried { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 2rem; margin: 1.2rem 0 0; }
.tried h2 { grid-column: 1 / -1; border: 0; margin: 0 0 .2rem; padding: 0; font-size: 1.05rem; }
.tried h3 { margin: .2rem 0 .3rem; } .tried ul { margin: 0; padding-left: 1.1rem; font-size: .92rem; }
.in-short { max-width: none; margin: .8rem 0 0; }
.tried code { overflow-wrap: anywhere; }
.succeeded { color: var(--bad); font-weight: 700; }
@media screen and (max-width: 47rem) { .tried { grid-template-columns: minmax(0, 1fr); margin-top: .8rem; } }
"""
_PARTIES = {
    frozenset({"server"}): "server", frozenset({"key_server"}): "key_holder", frozenset({"client"}): "client",
    frozenset({"server", "client"}): "client_and_server", frozenset({"released"}): "released_model",
}  # fmt: skip
"""The line of a verdict that an adversary, by its roles, is an example of."""


def attacked(attacks: Attacks, verdict: Verdict, sites: Sequence[Signed] = (), clients: int = 0) -> str:
    """Both lists, side by side.

    Args:
        attacks: on the run.
        verdict: of the run.
        sites: the reports of sites.
        clients: the number of clients.
    """
    made = "".join([*_by_party(attacks.tried), *map(_of_site, sites)])
    left = f"<ul>{made}</ul>" if made else "<p><strong>No attack was tried.</strong></p>"
    right = "".join(f"<li>{sentence(said)}</li>" for said in nobody_tried(attacks, verdict, sites, clients))
    return (
        '<section class="tried" aria-labelledby="tried"><h2 id="tried">What was attacked, and what nobody tried</h2>'
        f"<div><h3>Attacked</h3>{left}</div><div><h3>Nobody tried</h3><ul>{right}</ul></div></section>"
    )


def attacked_short(attacks: Attacks, verdict: Verdict, sites: Sequence[Signed] = (), clients: int = 0) -> str:
    """Both in two sentences, for the top of the page. The arguments are those of `attacked`."""
    tried = attacks.tried
    said, alike = [_in_short(tried)] if tried else [], dict[str, list[str]]()
    for signed in sites:
        alike.setdefault(_in_short(signed.report.tried), []).append(str(signed.report.client))
    for found, who in alike.items():
        said.append(f"{f'sites {named(who)} report' if len(who) > 1 else f'site {who[0]} reports'}: {found}")
    worked = any(one.worked for one in (*tried, *(one for signed in sites for one in signed.report.tried)))
    left = "; ".join(nobody_tried(attacks, verdict, sites, clients))
    first = sentence(f"{'; '.join(said) or 'nothing: no attack was tried'}.")
    kind = ' class="succeeded"' if worked else ""
    return (
        f'<p class="in-short"><b>Attacked:</b> <span{kind}>{first}</span> <b>Nobody tried:</b> {sentence(left)}.</p>'
    )


def _by_party(tried: Sequence[Tried]) -> Iterator[str]:
    """An item for each adversary; those with the same results together."""
    by_party: dict[str, list[Tried]] = {}
    for one in tried:
        by_party.setdefault(one.who or one.adversary or "somebody", []).append(one)
    alike: dict[str, list[str]] = {}
    for who, its in by_party.items():
        alike.setdefault(_made(its), []).append(who)
    yield from (f"<li><b>{text(named(who))}</b>: {found}</li>" for found, who in alike.items())


def _in_short(tried: Sequence[Tried]) -> str:
    worked, made = [one for one in tried if one.worked], [one for one in tried if one.succeeded is not None]
    unclear = [one for one in made if one.state == "inconclusive"]
    if not tried:
        return "nothing could be attacked"
    if worked:
        return f"{_names(worked)} succeeded, of {_names(made)}"
    if not made:
        return "no attack that was tried applied to what was sent"
    return f"{_names(made)}, and none succeeded" + (f", though {_names(unclear)} ended inconclusive" if unclear else "")


def _of_site(signed: Signed) -> str:
    """What a site tried on its own uploads, on its word."""
    report = signed.report
    found = "".join(_by_party(report.tried))
    left = "".join(f"<li>not attacked: {sentence(f'{who}: {why}')}</li>" for who, why in report.left_out)
    return (
        f"<li><b>Tried by site {report.client}</b>, on that site's word, signed with the key "
        f"<code>{text(fingerprint(signed.public))}</code>: {sentence(report.found)}<ul>{found}{left}</ul></li>"
    )


def nobody_tried(attacks: Attacks, verdict: Verdict, sites: Sequence[Signed], clients: int) -> list[str]:
    """What no attack says anything about, in clauses; a site's attacks say something of that site alone.

    The arguments are those of `attacked`.
    """
    # A site plays no other adversary, so the word of one for others counts for nothing.
    of_sites = [one for signed in sites for one in signed.report.tried if _party(one) is not None]
    said = not_tried([*attacks.tried, *of_sites], verdict, attacks.untried)
    if not sites:
        return said
    left = untried(sites, clients)
    none, some = f"any of the {units.many(clients, 'client')}", dict[str, list[str]]()
    by_run = {_party(one) for one in attacks.tried if one.succeeded is not None}
    for line in verdict.lines:
        if line.state == "absent" or line.party in by_run:
            continue
        without = untried(sites, clients, functools.partial(_plays, line.party))
        if without not in ("", none) and (attacks.tried or without != left):
            some.setdefault(without, []).append(line.who)
    parts = [f"any attack by {named(who, 'or')} on {without}" for without, who in some.items()]
    return [*([f"any attack on {left}"] if left and not attacks.tried else []), *parts, *said]


def _plays(party: str, one: Tried) -> bool:
    return _party(one) == party


def _party(one: Tried) -> str | None:
    """The line of a verdict that its adversary is an example of; None if there is none."""
    return _PARTIES.get(frozenset(role.partition(":")[0] for role in one.adversary.split("+")))


def _made(tried: Sequence[Tried]) -> str:
    """The attacks of one adversary: those that succeeded, failed, tell nothing, or did not apply."""
    said = []
    worked = [one for one in tried if one.worked]
    others = [one for one in tried if one.succeeded is not None and not one.worked]
    failed = [one for one in others if one.state != "inconclusive"]
    unclear = [one for one in others if one.state == "inconclusive"]
    if worked:
        most = max(worked, key=lambda one: one.succeeded or 0.0)
        where = f"{units.percent(most.succeeded)} of its targets" if most.succeeded else "all targets together"
        found = f"{_names(worked)} succeeded, {_names([most])} on {where}"
        said.append(f'<span class="succeeded">{sentence(found)}</span>')
    if failed:
        said.append(sentence(f"{_names(failed)} failed"))
    if unclear:
        said.append(sentence(f"{_names(unclear)} ended inconclusive"))
    if moot := [one for one in tried if one.succeeded is None]:
        said.append(sentence(f"{_names(moot)} did not apply to what it sees"))
    return "; ".join(said)


def _names(tried: Sequence[Tried]) -> str:
    return named(dict.fromkeys(one.attack.split(" ")[0].rpartition(".")[2] for one in tried))


def not_tried(tried: Sequence[Tried], verdict: Verdict, unseen: Sequence[str] = ()) -> list[str]:
    """What no attack of these says anything about, in clauses."""
    played, applied = {*map(_party, tried)}, {_party(one) for one in tried if one.succeeded is not None}
    there = [line for line in verdict.lines if line.state != "absent"]
    said = [one.rstrip(".") for one in unseen]
    if without := [line.who for line in there if line.party not in played]:
        said.append(f"any attack by {named(without, 'or')}")
    if moot := [line.who for line in there if line.party in played - applied]:
        said.append(f"any attack that applies to what {named(moot, 'or')} sees")
    said += ["attacks by parties that send altered messages"] if not any(
        one.adversary.startswith("malicious") for one in tried) else []  # fmt: skip
    return [*said, "stronger attacks than these: one that fails proves nothing about them"] if tried else said
