"""The rules between the parts of a recipe: zones, the order of protectors, what must be undone, who may stand where.

Reads only what components declare (`fedplug.component`), so that a wrong recipe is refused before anything runs. Works
on drafts: a part that is wrong by itself is left out, and everything else is still judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedplug.attack_scope import scope_problems
from fedplug.composition import hook_problems, instantiate
from fedplug.errors import PluginError
from fedplug.option_errors import closest
from fedplug.profiles import profile_problems
from fedplug.types import BASE_ZONES, CLEAR, RETAINED

if TYPE_CHECKING:
    from fedplug.recipe import Use
    from fedplug.recipe_reader import Draft
    from fedplug.yaml_source import KeyPath

Complaint = tuple["KeyPath", str]


def find_problems(draft: Draft) -> list[Complaint]:
    """Everything that is wrong between the parts of a recipe, with its place."""
    rules = _Rules(draft)
    found = [
        *rules.hooks(), *rules.clients(), *rules.profiles(), *rules.zones(), *rules.order(), *rules.undo(),
        *rules.shared_noise(), *rules.masks(), *rules.scores(), *rules.attacks(),
    ]  # fmt: skip
    if not found and not rules.failed:
        found += rules.own_checks()
    return rules.failed + found


class _Rules:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.failed: list[Complaint] = []
        self.parts: dict[str, Any] = {}
        for use in draft.uses:
            if use.is_reference or use.options is None or use.name not in draft.classes:
                continue
            try:
                self.parts[use.name] = instantiate(draft.classes[use.name], use)
            except PluginError as error:
                self.failed.append((use.path, str(error)))

    def declares(self, use: Use, what: str, default: Any) -> Any:
        """What a component declares: its instance's answer, or, where it could not be built, its class's."""
        part = self.parts.get(use.name, self.draft.classes.get(use.name))
        value = getattr(part, what, default)
        return default if isinstance(value, property) else value

    def hooks(self) -> Iterator[Complaint]:
        """Every component implements what its section calls, with arguments that exist."""
        for use in self.draft.uses:
            if use.name not in self.draft.classes:
                continue
            section_group = self.section_group(use)
            for problem in hook_problems(self.draft.classes[use.name], section_group):
                if use.is_reference and problem.startswith("does not implement"):
                    lacks = problem.partition(";")[0]
                    yield use.path, f"{use.name} ({use.use}) cannot stand under {use.section}: it {lacks}"
                elif not use.is_reference:
                    yield use.path, f"component {use.use} {problem}"

    def section_group(self, use: Use) -> str:
        from fedplug.recipe import SECTIONS

        return SECTIONS.get(use.section, use.section)

    def clients(self) -> Iterator[Complaint]:
        """The cohort is never smaller than `min_clients` by design."""
        general, clients = self.draft.general, self.draft.clients
        if general is None or clients is None:
            return
        if general.min_clients > clients:
            rule = f"must be <= data.clients={clients}"
            yield ("min_clients",), f"min_clients={general.min_clients} {rule}; lower it, or split the data among more"
        elif general.sampling and general.sampling.rate * clients < general.min_clients:
            expected = f"{general.sampling.rate * clients:g} of {clients} clients a round"
            yield (
                ("sampling", "rate"),
                f"rate={general.sampling.rate:g} gives {expected}, fewer than min_clients={general.min_clients}; "
                f"raise it to {general.min_clients / clients:g} or more",
            )

    def profiles(self) -> Iterator[Complaint]:
        """Every client has one profile, or none has."""
        if self.draft.general is not None and self.draft.clients is not None:
            yield from profile_problems(self.draft.general.profiles, self.draft.clients)

    def zones(self) -> Iterator[Complaint]:
        """Zones of the plans, of `protect` and of `postprocess` agree."""
        protect = self.draft.chains.get("protect", {})
        postprocess = self.draft.chains.get("postprocess", {})
        if RETAINED in protect:
            yield ("protect", RETAINED), "zone retained never leaves the client; remove it from protect"
        for use in postprocess.get(RETAINED, []):
            if self.declares(use, "site", "client") != "client" or self.declares(use, "must_undo", False):
                message = f"{use.name} cannot stand here: zone retained never leaves the client"
                yield use.path, f"{message}; put a component that merges models at the client, or remove it"
        for zone in postprocess:
            if zone not in protect and zone != RETAINED:
                yield ("postprocess", zone), f"zone {zone} is not under protect; {_zones(protect)}"
        negotiation = next((use for use in self.draft.uses if use.section == "negotiate_mask"), None)
        if negotiation is None or negotiation.name not in self.parts:
            return
        held = self.declares(negotiation, "zones", None)
        if held is None:
            message = f"component {negotiation.use} must declare `zones`, the zones that its plans can hold"
            yield negotiation.path, message
            return
        for zone in sorted(set(held) - set(protect) - {RETAINED}):
            remedy = f"{zone}: [{{use: ...}}], or {zone}: [] to send it unprotected"
            remedy = "clear: [] to send it in the clear" if zone == CLEAR else remedy
            message = f"plans of {negotiation.name} can hold zone {zone}, which nothing covers; write {remedy}"
            yield ("protect",), message
        if postprocess.get(RETAINED) and RETAINED not in held:
            yield ("postprocess", RETAINED), f"no plan of {negotiation.name} can hold zone retained; remove it"
        for zone in sorted(set(protect) - set(held) - {RETAINED}):
            hint = closest(zone, sorted(held)) if zone not in BASE_ZONES else f"remove it ({_zones(sorted(held))})"
            yield ("protect", zone), f"no plan of {negotiation.name} can hold zone {zone}; {hint}"

    def order(self) -> Iterator[Complaint]:
        """`requires` and `forbids_before` along each zone's chain, from protect through postprocess."""
        protect, postprocess = (self.draft.chains.get(section, {}) for section in ("protect", "postprocess"))
        for zone in [zone for zone in protect if zone not in self.draft.unreadable]:
            provided: set[str] = set()
            missed: set[str] = set()
            for use in protect[zone]:
                provides = set(self.declares(use, "provides", frozenset()))
                missed |= set(self.declares(use, "requires", {})) - provided
                # A clip after the noise is one mistake: the noise has said already that it misses the clip.
                found = list(self.link(use, provided, zone))
                yield from [] if provides & missed else found
                provided |= provides
            for use in postprocess.get(zone, []):
                if self.declares(use, "must_undo", False):
                    provided -= self.declares(use, "provides", frozenset())  # what is undone is no longer there
                else:
                    yield from self.link(use, provided, zone)
                    provided |= self.declares(use, "provides", frozenset())

    def link(self, use: Use, provided: set[str], zone: str) -> Iterator[Complaint]:
        for capability, remedy in self.declares(use, "requires", {}).items():
            if capability not in provided:
                yield use.path, f"{use.name} needs {capability} earlier in the chain of zone {zone}; {remedy}"
        for capability, remedy in self.declares(use, "forbids_before", {}).items():
            if capability in provided:
                yield use.path, f"{use.name} must not come after {capability} in the chain of zone {zone}; {remedy}"

    def undo(self) -> Iterator[Complaint]:
        """What encrypts a zone is undone by the same zone's postprocess, last first."""
        protect, postprocess = (self.draft.chains.get(section, {}) for section in ("protect", "postprocess"))
        for zone in [zone for zone in protect if zone not in self.draft.unreadable]:
            sealed = [use.name for use in protect[zone] if self.declares(use, "must_undo", False)][::-1]
            opening = postprocess.get(zone, [])
            opened = [use for use in opening if self.declares(use, "must_undo", False)]
            remedy = f"write postprocess: {{{zone}: [{', '.join(sealed)}]}}"
            strangers = [use for use in opened if use.name not in sealed]
            for use in strangers:
                hint = "refer to it by its name" if any(u.use == use.use for u in protect[zone]) else "remove it"
                yield use.path, f"{use.name} does not protect the zone {zone}, so it cannot open it; {hint}"
            missing = [name for name in sealed if name not in {use.name for use in opened}]
            if missing and not strangers:
                at = ("postprocess", zone) if opening else ("protect", zone)
                yield at, f"{missing[0]} protects the zone {zone}, but nothing opens the sum; {remedy}"
            elif not missing and not strangers and [use.name for use in opened] != sealed:
                message = f"the zone {zone} must be opened in the reverse order of its protection; {remedy}"
                yield ("postprocess", zone), message

    def shared_noise(self) -> Iterator[Complaint]:
        """A component that draws noise protects one zone only: its stream and its release are kept under its name."""
        seen: dict[str, str] = {}
        for zone, chain in self.draft.chains.get("protect", {}).items():
            for use in chain:
                if "noise" in self.declares(use, "provides", frozenset()) and seen.setdefault(use.name, zone) != zone:
                    remedy = f"write {{use: {use.use}, ...}} to get one of its own"
                    yield use.path, f"{use.name} draws the noise of zone {seen[use.name]} already; {remedy}"

    def masks(self) -> Iterator[Complaint]:
        """A protector that works value by value over all clients needs a zone that lies alike at all of them."""
        negotiation = next((use for use in self.draft.uses if use.section == "negotiate_mask"), None)
        own = self.declares(negotiation, "own_zones", frozenset()) if negotiation else frozenset()
        for zone, chain in self.draft.chains.get("protect", {}).items():
            for use in chain if zone in own else []:
                if negotiation and self.declares(use, "needs_shared_zone", False):
                    message = f"{use.name} needs a zone that lies alike at all clients, but {negotiation.name} lets"
                    remedy = "choose another negotiation or protector"
                    yield use.path, f"{message} each have a zone {zone} of its own; {remedy}"

    def scores(self) -> Iterator[Complaint]:
        """What reads one score a layer is given one a layer."""
        scorers = {use.name: use for use in self.draft.uses if use.section == "score_parameters"}
        for use in self.draft.uses:
            if use.is_reference or not self.declares(use, "needs_layer_scores", False):
                continue
            by = getattr(use.options, "by", None)
            scorer = scorers.get(by) if by else next(iter(scorers.values()), None)
            if scorer and not self.declares(scorer, "per_layer", False):
                fitting = [name for name, other in scorers.items() if self.declares(other, "per_layer", False)]
                remedy = f"write by: {fitting[0]}" if fitting else "add a scorer of layers, such as {use: fedre.psi}"
                message = f"{use.name} needs a score for each layer, but {scorer.name} scores scalars"
                yield use.path, f"{message}; {remedy}"

    def attacks(self) -> Iterator[Complaint]:
        """Adversaries, targets and rounds exist."""
        recipe = self.draft.recipe
        if recipe is not None and recipe.attack:
            opened_by = [use for chain in recipe.postprocess.values() for use in chain]
            there = any(self.declares(use, "site", "client") == "key_server" for use in opened_by)
            for adversary in recipe.attack_scope.adversaries:
                if "key_server" in adversary.split("+") and not there:
                    message = f"adversary {adversary}: this protocol has no key server; nothing is opened there"
                    yield ("attack",), message
            for message in scope_problems(recipe.attack_scope, recipe.rounds, recipe.data.clients):
                yield ("attack",), message

    def own_checks(self) -> list[Complaint]:
        """What components say of the recipe as a whole; asked only when all else is in order."""
        found: list[Complaint] = []
        for use in self.draft.uses:
            check = getattr(self.parts.get(use.name), "check", None)
            if use.is_reference or self.draft.recipe is None or not callable(check):
                continue
            try:
                for message in check(self.draft.recipe):
                    found.append((use.path, message if message.startswith(use.name) else f"{use.name}: {message}"))
            except Exception as error:
                found.append((use.path, f"component {use.use}: its check fails: {type(error).__name__}: {error}"))
        return found


def _zones(names: Any) -> str:
    return f"zones here: {', '.join(names) or 'none'}"
