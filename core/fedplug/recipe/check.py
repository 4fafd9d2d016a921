"""The rules between the parts of a recipe: zones, the order of links, what must be undone, which links may be where.

Reads only what components declare in their roles, and the operations of the same list of links that the protocol
executes (`fedplug.api.links`), so that a wrong recipe is refused before anything runs. Works on drafts: a part that is
wrong is left out, and everything else is still judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedplug.api.blocks import BASE_ZONES, CLEAR, RETAINED, Layout
from fedplug.api.errors import FedplugError, PluginError
from fedplug.api.facts import Facts
from fedplug.api.links import Step, fold, uploaded
from fedplug.api.order import misplaced_links
from fedplug.api.roles import Closer, Component, Negotiation, Opener
from fedplug.recipe.catalog import RULES, installed, service
from fedplug.recipe.composition import chains, hook_problems, instantiate
from fedplug.recipe.parts import Use, zone_order
from fedplug.recipe.reader import Draft
from fedplug.recipe.sections import Around, Resolved
from fedplug.recipe.source import KeyPath, closest

Complaint = tuple[KeyPath, str]


def find_problems(draft: Draft, recipe: Resolved | None) -> tuple[list[Complaint], list[str]]:
    """Everything that is wrong between the parts of a recipe, with its place, and what is right and promises nothing.

    Without a recipe some parts are wrong alone.
    """
    rules = Rules(draft, recipe)
    others: list[Any] = [entry.imported() for entry in installed(RULES).values()]
    problems = [
        *rules.zones(), *rules.order(), *rules.shared_noise(), *rules.sections(),
        *(problem for each in others for problem in each.problems(rules)),
    ]  # fmt: skip
    if recipe is not None and not problems and not rules.failed:
        problems += rules.own_checks(recipe)
    found = rules.failed + problems
    return found, [] if found else [note for each in others if hasattr(each, "notes") for note in each.notes(rules)]


class Rules:
    """A draft with its components built, as rules see it.

    Args:
        draft: the parts of the recipe that are right.
        recipe: the same as a whole; None where a part is wrong.

    Attributes:
        parts: the components, by name.
        defined: each with its place.
        foldable: the zones whose links can be folded: `steps` gives them with their operations.
        last: the last round, from 0.
    """

    def __init__(self, draft: Draft, recipe: Resolved | None) -> None:
        self.draft, self.recipe = draft, recipe
        self.num_clients = draft.split.clients if draft.split else None
        self.failed: list[Complaint] = []
        self.parts: dict[str, Component] = {}
        members = service("members")
        for use in draft.uses:
            if use.is_reference or use.options is None or use.made_of is None:
                continue
            wrong = [
                (each.path, f"component {each.use} {problem}")
                for each in use.nested
                if each.made_of is not None
                for problem in hook_problems(each.made_of, each.group)
            ]
            if wrong:
                self.failed += wrong
                continue
            try:
                part = instantiate(use)
            except PluginError as error:
                self.failed.append((use.path, str(error)))
                continue
            if problems := [*members.of_part(part)] if members else []:
                self.failed += [(use.path, f"component {use.use} {problem}") for problem in problems]
            else:
                self.parts[use.name] = part
        self.placed = [(use, self.parts[use.name]) for use in draft.uses if use.name in self.parts]
        self.defined = [(use, part) for use, part in self.placed if not use.is_reference]
        self.protect, self.postprocess = draft.chains("protect"), draft.chains("postprocess")
        self.links = chains(self.protect, draft.known.get("aggregate"), self.postprocess, self.parts)
        self.memo: dict[Any, Any] = {}
        self.folded: dict[tuple[str, int], tuple[Step, ...]] = {}
        self.zone_names = zone_order([*self.protect, *self.postprocess])
        # Zones whose chains can be judged, and those whose links can be folded.
        self.readable = [zone for zone in self.protect if zone not in draft.unreadable and zone != RETAINED]
        self.foldable = [zone for zone in self.readable if self._is_whole(zone)]
        self.last = draft.general.rounds - 1 if draft.general else 0

    def _is_whole(self, zone: str) -> bool:
        """Whether all that a zone's operations follow from could be read; without it, links seem to lack others."""
        aggregate, chosen = self.draft.known.get("aggregate"), self.negotiation()
        uses = [*self.protect[zone], *self.postprocess.get(zone, []), *([aggregate] if aggregate else [])]
        if self.failed or self.num_clients is None or any(use.name not in self.parts for use in uses):
            return False
        return chosen is None or chosen[1].plans.zones <= set(self.zone_names)

    def negotiation(self) -> tuple[Use, Negotiation] | None:
        """The negotiation and its place; None where it could not be built."""
        use = self.draft.known.get("negotiate_mask")
        part = self.parts.get(use.name) if use else None
        return (use, part) if use and isinstance(part, Negotiation) else None

    def context(self, round: int) -> Facts:
        """The public facts of a round, as far as the draft tells them; no model is known yet."""
        general = self.draft.general
        return Facts(
            round=round, rounds=general.rounds if general else 1, layout=Layout(()), zones=self.zone_names,
            num_clients=self.num_clients or 1, min_clients=general.min_clients if general else 1,
            seed=general.seed if general else 0, digest="", components=self.parts, chains=self.links, _memo=self.memo,
        )  # fmt: skip

    def plans_are_public(self) -> bool:
        """Whether plans follow from facts alone; where a component fails to say, they do not."""
        try:
            return self.context(0).plans_are_public
        except FedplugError:
            return False

    def steps(self, zone: str, round: int = 0, anew: bool = False) -> tuple[Step, ...]:
        """The links of a zone with their operations in a round, which `anew` asks of them once more; `order` complains
        about misplaced ones.
        """
        if anew or (zone, round) not in self.folded:
            self.folded[zone, round] = fold((facts := self.context(round)).links[zone], facts, lambda link, error: None)
        return self.folded[zone, round]

    def bare_uploads(self) -> bool:
        """Whether a zone has no noise of the clients, so that those who rest put nothing into its sum."""
        behind = (uploaded(self.steps(zone)) for zone in self.foldable)
        return any(known is None or not known.releases for known in behind)

    def zones(self) -> Iterator[Complaint]:
        """Zones of the plans, of `protect` and of `postprocess` agree."""
        protect, postprocess = self.protect, self.postprocess
        if RETAINED in protect:
            yield ("protect", RETAINED), "zone retained never leaves the client; remove it from protect"
        for use in postprocess.get(RETAINED, []):
            part = self.parts.get(use.name)
            if isinstance(part, Closer) or (isinstance(part, Opener) and part.site != "client"):
                message = f"{use.name} cannot be here: zone retained never leaves the client"
                yield use.path, f"{message}; put a component that merges models at the client, or remove it"
        for zone in postprocess:
            if zone not in protect and zone != RETAINED:
                yield ("postprocess", zone), f"zone {zone} is not under protect; {_zones(protect)}"
        chosen = self.negotiation()
        if chosen is None:
            return
        negotiation, held = chosen[0], chosen[1].plans.zones
        for zone in sorted(set(held) - set(protect) - {RETAINED}):
            hint = f"{zone}: [{{use: ...}}], or {zone}: [] to send it unprotected"
            hint = "clear: [] to send it in the clear" if zone == CLEAR else hint
            yield ("protect",), f"plans of {negotiation.name} can hold zone {zone}, which nothing covers; write {hint}"
        if postprocess.get(RETAINED) and RETAINED not in held:
            yield ("postprocess", RETAINED), f"no plan of {negotiation.name} can hold zone retained; remove it"
        for zone in sorted(set(protect) - set(held) - {RETAINED}):
            away = f"remove it, or write {zone}: null where it comes by extends ({_zones(sorted(held))})"
            hint = closest(zone, sorted(held)) if zone not in BASE_ZONES else away
            yield ("protect", zone), f"no plan of {negotiation.name} can hold zone {zone}; {hint}"

    def order(self) -> Iterator[Complaint]:
        """Every link is in a valid place and can run there, in the first round and the last."""
        for zone in self.foldable:
            for round in dict.fromkeys((0, self.last)):
                facts = self.context(round)
                if misplaced := misplaced_links(facts.links[zone], facts):
                    yield from ((link.path, message) for link, message in misplaced)
                    break

    def shared_noise(self) -> Iterator[Complaint]:
        """A component that draws noise protects one zone only: its stream and its release are kept under its name."""
        seen: dict[str, str] = {}
        for zone in self.foldable:
            for step in self.steps(zone):
                link = step.link
                draws = link.hook == "protect" and len(step.after.releases) > len(step.before.releases)
                if draws and seen.setdefault(link.name, zone) != zone:
                    use = next(use for use in self.draft.uses if use.path == link.path)
                    remedy = f"write {{use: {use.use}, ...}} to get a separate one"
                    yield link.path, f"{link.name} draws the noise of zone {seen[link.name]} already; {remedy}"

    def sections(self) -> Iterator[Complaint]:
        """What plugins' sections say of the recipe around them."""
        around = Around(self.num_clients, self.recipe, self.parts)
        for key, section in self.draft.sections.items():
            try:
                yield from [((key, *path), message) for path, message in section.check(around)]
            except Exception as error:
                yield (key,), f"section {key}: its check fails: {type(error).__name__}: {error}"

    def own_checks(self, recipe: Resolved) -> list[Complaint]:
        """What components say of the recipe as a whole; asked only when all else is in order."""
        complaints: list[Complaint] = []
        for use, part in self.defined:
            try:
                for message in part.check(recipe):
                    complaints.append((use.path, message if message.startswith(use.name) else f"{use.name}: {message}"))
            except Exception as error:
                complaints.append((use.path, f"component {use.use}: its check fails: {type(error).__name__}: {error}"))
        return complaints


def _zones(names: Any) -> str:
    return f"zones here: {', '.join(names) or 'none'}"
