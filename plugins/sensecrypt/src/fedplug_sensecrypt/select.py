"""SenseCrypt's negotiation: each device gets a budget, and each client chooses its own mask (Sec. 3.2 and 3.3)."""

from __future__ import annotations

import sys
from typing import Any, Literal

import fedplug
from fedplug import Client, Cohort, Facts, Field, Plan, Plans, Reads, Reveals, at_client
from fedplug.api.blocks import CLEAR, ENCRYPTED, RETAINED
from fedplug.api.errors import ProtectionError
from fedplug.api.links import seal_of
from fedplug_std.options import OtherZone
from fedplug_std.replies import valid
from fedplug_std.scores import scorer_problems
from pydantic import field_validator

from fedplug_sensecrypt.budgets import budgets
from fedplug_sensecrypt.devices import Profile, profiles_of
from fedplug_sensecrypt.selection import Problem, Selection, security_level, solve

Device = list[float]
"""A client's report about its device: bandwidth r and processing speed v."""


class Select(fedplug.Negotiation):
    """Let each client encrypt the scalars most sensitive for it, as many as its device can (SenseCrypt, Sec. 3).

    The server derives an encryption budget for each client from bandwidth and CPUs, within its group. In every round
    each client solves the selection problem (Eq. 9) for itself. It encrypts few scalars that cover much sensitivity: at
    most the budget, and at least the share 1 - C exp(-B alpha) of the sensitivity. Masks differ between clients.
    """

    class Options(fedplug.Options):
        B: float = Field(1.3, ge=0, allow_inf_nan=False, description="how fast the security level rises with alpha")
        C: float = Field(0.7, ge=0, le=1, description="the security level is 1 - C exp(-B alpha); 1 - C at alpha 0")
        beta1: float = Field(1.0, gt=0, allow_inf_nan=False, description="weight of encrypting few scalars")
        beta2: float = Field(1.0, gt=0, allow_inf_nan=False, description="weight of covering much sensitivity")
        objectives: Literal["normalised", "raw"] = Field(
            "normalised",
            description="normalised: shares of N and of all sensitivity; raw: counts and sums, as published",
        )
        mutual_information: float | None = Field(
            None, ge=0, allow_inf_nan=False,
            description="eta, largest I(W; (1-X)W) in bits, 64-bin estimate; null only reports it; the paper takes 2.0",
        )  # fmt: skip
        budget: float | None = Field(None, gt=0, le=1, description="alpha of every client, instead of profiles")
        global_budget: bool = Field(
            False, description="budgets relative to the best of all clients, as Alg. 3 prints, not of the group"
        )
        by: str | None = Field(None, description="scorer that gives the sensitivities; the recipe's first if unset")
        other_zone: OtherZone = CLEAR

        @field_validator("other_zone")
        @classmethod
        def _another_zone(cls, value: str) -> str:
            if value in (ENCRYPTED, RETAINED):
                raise ValueError(f"other_zone={value} must be a zone that is sent and not encrypted, such as {CLEAR}")
            return value

    options: Options

    @property
    def plans(self) -> Plans:
        """Two zones, with different positions at each client: every client encrypts the scalars that it chooses."""
        zones = frozenset({ENCRYPTED, self.options.other_zone})
        return Plans(zones=zones, own=zones)

    @property
    def reads(self) -> Reads:
        """One sensitivity per scalar."""
        return Reads(by=self.options.by, per="scalar")

    def check(self, recipe: Any) -> list[str]:
        """Something must score the scalars, and something must state the capacity of each device."""
        options = self.options
        missing = "the selection needs sensitivities; add score_parameters: [{use: sensecrypt.sensitivity}]"
        found = scorer_problems(recipe, options.by, missing)
        if options.budget is None and not profiles_of(recipe):  # if there are any, every client must have one
            found.append(
                "budgets follow from bandwidth and CPUs; add profiles, such as [{of: [0, 1], cpus: 8, bandwidth: 30}], "
                "or set budget for all clients"
            )
        if options.budget is not None and options.global_budget:
            found.append(f"global_budget compares devices, and budget={options.budget:g} sets alpha; leave one out")
        return found

    # -- Sec. 3.2: budgets ---------------------------------------------------------------------------------------------

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """Alg. 3, phase 1: every client sends (r_i, v_i), once."""
        if self.options.budget is not None:
            return
        cohort.server.memory(self)["devices"] = valid(cohort, cohort.ask(self.device), device_problem)

    @at_client
    def device(self, client: Client) -> Device:
        """Bandwidth in MB/s and CPUs of this client."""
        profile: Profile | None = client.said.get("profiles")
        if profile is None:
            raise ProtectionError(f"client {client.client_id} has no profile; add it to profiles, or set budget")
        return [profile.bandwidth, profile.cpus]

    def budgets(self, cohort: Cohort) -> dict[int, float]:
        """alpha of every client of the cohort's group, or of all with `global_budget`. Runs at the server."""
        members = next(ids for ids in cohort.groups.values() if cohort.client_ids[0] in ids)
        if self.options.budget is not None:
            return dict.fromkeys(members, self.options.budget)
        devices: dict[int, Device] = cohort.server.memory(self)["devices"]
        compared = sorted(devices if self.options.global_budget else members)
        alphas = budgets(*zip(*(devices[client_id] for client_id in compared), strict=True))
        return dict(zip(compared, alphas.tolist(), strict=True))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Sends each client of the group its budget. The client does the rest."""
        alphas = self.budgets(cohort)
        for client_id in cohort.client_ids:
            cohort.only([client_id]).tell_now(self.choose, alphas[client_id])
            if facts.round == 0:  # the floor of Eq. 7, which the clients' mean in the metrics would hide
                level = security_level(alphas[client_id], self.options.B, self.options.C)
                cohort.server.log[f"{self.name}.security_level.client_{client_id}"] = level

    # -- Sec. 3.3: the selection problem -------------------------------------------------------------------------------

    @at_client
    def choose(self, client: Client, alpha: float) -> None:
        """Alg. 1, line 9: solves the selection problem and sets the plan of this client alone."""
        options, facts = self.options, client.facts
        gamma = client.scores_by(options.by)
        if len(gamma) != facts.layout.size:
            raise ProtectionError(
                f"{len(gamma)} sensitivities for {facts.layout.size} scalars; the selection needs one for each: use a "
                "scorer of scalars, such as sensecrypt.sensitivity"
            )
        problem = Problem(
            alpha, options.B, options.C, options.beta1, options.beta2,
            raw=options.objectives == "raw", eta=options.mutual_information,
        )  # fmt: skip
        with client.operation(f"{self.name}.solve", facts.layout.size):
            selection = solve(gamma, problem, client.local)
        # No zone is shared: blocks travel with their positions, because every client has a different mask.
        client.plan = Plan.of(facts, options.other_zone, **{ENCRYPTED: selection.mask})
        client.log.update({f"{self.name}.{key}": value for key, value in numbers(alpha, selection).items()})

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Information in the masks and budgets."""
        seal = seal_of(facts.steps(ENCRYPTED))
        single = seal is None or seal[1].position_block == 1  # single scalars name classes (docs/papers/insiders.md)
        mask = "every client's own, by name, in every round: which " + (
            "scalars are most sensitive for its data, which tells its classes; an encryption that packs shows blocks"
            if single else
            "blocks hold the scalars that are most sensitive for its data"
        )  # fmt: skip
        union = "the positions of the sum that are opened: the union of the group's masks"
        channels = [
            Reveals("masks", ("server",), voids=single, note=mask),
            Reveals("union of masks", ("client", "key_holder"), note=union),
        ]
        if self.options.budget is None:
            told = "of each client, sent once; no training data goes into them"
            channels.append(Reveals("bandwidth and CPUs", ("server",), asked=("device",), note=told))
        return channels

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        floor = security_level(options.budget or 1.0, options.B, options.C)
        whose = f"budget {options.budget:g}" if options.budget else "budget from profiles"
        whose += " over all clients" if options.global_budget else ""
        bound = "" if options.mutual_information is None else f", at most {options.mutual_information:g} bits"
        return (
            f"own masks, {whose}, at least 1 - {options.C:g} exp(-{options.B:g} alpha) of the sensitivity ({floor:.0%} "
            f"at alpha {options.budget or 1:g}){bound}; {options.objectives} objectives, the rest {options.other_zone}"
        )


def numbers(alpha: float, selection: Selection) -> dict[str, float]:
    """Numbers of one solution for the metrics."""
    return {
        "alpha": alpha,
        "encrypted": selection.count / max(1, len(selection.mask)),
        "security_level": selection.level,
        "sensitivity_covered": selection.covered,
        "mutual_information": selection.information,
        "security_constraint_violated": float(selection.security_violated),
        "information_constraint_violated": float(selection.information_violated),
    }


def device_problem(device: Any) -> str:
    """Why a client's report about its device is not valid; empty if it is."""
    numbers = isinstance(device, list) and len(device) == 2 and all(type(n) in (int, float) for n in device)
    if numbers and all(0 < n <= sys.float_info.max for n in device):  # whole numbers can be larger
        return ""
    return f"its device is {device!r:.60}, which must be a bandwidth and a number of CPUs, finite and > 0"
