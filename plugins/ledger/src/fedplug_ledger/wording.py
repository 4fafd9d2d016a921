"""The words of a verdict: what each party sees, and why it has no guarantee. `views` decides about guarantees."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from fedplug.api.blocks import NOISED
from fedplug.api.operations import Party

from fedplug_ledger.book import Book
from fedplug_ledger.verdict import MOST_WORDS

PLAIN_VALUES = "clients found plain values of zones that they protect in their own messages"
"""What a recorded run says of itself where its clients found some; see `fedplug_runs.compared`."""

OF_NUMBERS = (
    "each client sends its number once, in the clear; all clients learn the largest, and those that open a sum learn "
    "the total; equal weights avoid this"
)
OF_METRICS = (
    "training loss, counts of correct predictions (and, where the task counts them, of labels), component logs and "
    "pictures, sent in the clear for the report"
)
OF_FINE_TUNING = "; also counts of models that clients fine-tune on their examples, without noise"
OF_BUFFERS = "means and variances of activations, averaged in the clear; buffers: local keeps them at the client"
OF_PLANS = (
    "which scalars each client put into which zone follows from data or from who takes part, and shows in positions "
    "and sizes"
)
OF_DIVISORS = (
    "the total weight of the clients behind each position of the {zones} sum: how many of them chose it, unless what "
    "the others sent there is counted too"
)
OF_SENDERS = (
    "the {zone} mean is a sum on a public grid over the number of clients that sent each position: it gives that "
    "number away, which follows from data. Divide by all clients, or have all send the same positions"
)
OF_EXAMPLES = (
    "its function is handed the examples (Map(function, examples=True)), and the account covers training alone"
)
OF_CLASSES = "how many training examples of each class there are, told by {count} of {clients} sites"
OF_PUBLISHED = "operations follow from it, and it may follow from clients' data: say what pays for it (covered_by)"
AFTERWARDS = (
    "what the layers of this round cost together with its public scores, stated after the fact, since later scores "
    "follow from earlier noise; before it, a bound"
)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No guarantee: why, in at most twelve words and in a sentence; or no such party."""

    reason: str
    detail: str = ""
    absent: bool = False


def sums_or_updates(ledger: Book, over: str = " over clients") -> str:
    """What sums are, in a few words: one that may hold one client's update is none."""
    return f"sums{over}" if ledger.min_clients > 1 else "single updates"


def sums_alone(ledger: Book, zones: list[str]) -> bool:
    """Whether nobody but the key server, or several clients together, opens more than sums of these zones."""
    return all(ledger.key_holders.get(zone) in ("key_server", "shares") for zone in zones)


def how_bare(ledger: Book, zones: list[str]) -> str:
    if sums_alone(ledger, zones):
        return "as decrypted sums"
    return "each client's own upload where it is plain or a client has the key"


def few_words(zones: str, names: list[str]) -> str:
    """Zones in a few words."""
    return f"the {zones} zone" if len(zones.split()) <= 3 else f"{len(names)} zone{'s' if len(names) > 1 else ''}"


def not_judged(ledger: Book) -> Iterator[str]:
    """The coalitions without a line that can open uploads: the server with the key server, or with more clients than
    a line covers.
    """

    def of_upload(zones: list[str], upload: str) -> str:
        return upload if len(zones) == len(ledger.costs) else f"the {listed(zones)} zone of {upload}"

    sealed = [zone for zone in ledger.costs if zone in ledger.sealed]
    if held := [zone for zone in sealed if ledger.key_holders[zone] == "key_server"]:
        yield f"the server together with the key server can decrypt {of_upload(held, 'every upload')}"
    more = [
        zone for zone in sealed
        if ledger.key_holders[zone] == "shares" and fewest_shares(ledger, [zone]) > ledger.colluders
    ]  # fmt: skip
    if more:
        fewest = fewest_shares(ledger, more)
        yield f"the server together with {fewest} clients can open {of_upload(more, 'single uploads')}"


def view_of(ledger: Book, party: Party) -> str:
    """A party's view of the updates, in plain words, whatever it guarantees."""
    if not ledger.costs:
        return "nothing of the updates"
    several = ledger.min_clients > 1
    totals = f"totals over {ledger.min_clients} or more clients" if several else "totals, which may be of one client"
    if party == "released_model":
        return "the model after every round, and no upload"
    if party == "client":
        return f"{totals}, from which it can subtract its own, and the model"
    if party == "key_holder":
        return totals
    if party not in ("server", "client_and_server"):
        raise ValueError(f"what {party} sees of the updates is said nowhere")
    plain = [zone for zone in ledger.costs if zone not in ledger.sealed]
    early = [zone for zone in plain if ledger.costs[zone].central and not ledger.costs[zone].bare]
    bare = [zone for zone in plain if ledger.costs[zone].bare]
    noised = [zone for zone in plain if zone not in (*bare, *early)]
    sealed = [zone for zone in ledger.costs if zone in ledger.sealed]
    single = {zone for zone in sealed if ledger.key_holders[zone] == "clients" and party == "client_and_server"}
    opened = bool(ledger.opened.intersection(sealed)) or party == "client_and_server"
    rest = [zone for zone in sealed if zone not in single]
    parts = [
        f"the {listed(bare)} zone as it is" if bare else "",
        f"the {listed(noised)} zone with its noise" if noised else "",
        f"the {listed(early)} zone before the noise" if early else "",
        f"the {listed(sorted(single))} zone opened with the client's key" if single else "",
        f"the {listed(rest)} zone as ciphertext" + (f", opened in {totals}" if opened else "") if rest else "",
    ]
    return f"each client's upload: {', '.join(part for part in parts if part)}"


def listed_bare(ledger: Book, zones: list[str]) -> str:
    """Zones that were released without noise: one called noised that never had any is so only by name."""
    never = [zone for zone in zones if zone == NOISED and not ledger.costs[zone].releases]
    return listed([f"so-called {zone}" if zone in never else zone for zone in zones])


def listed(zones: Iterable[str]) -> str:
    """Names in a sentence."""
    return " and ".join(zones)


def fewest_shares(ledger: Book, zones: Iterable[str] | None = None) -> int:
    """How many clients see an upload of one of these zones (None: of any) together with the server.

    They do so by their shares, or by taking their own updates out of a sum. Who answers with a share is in the sum, so
    it holds as many updates as shares are needed. What one client does alone has a separate line.
    """
    shared = [zone for zone, holder in ledger.key_holders.items() if holder == "shares"]
    needed = [ledger.encryption[zone].opens_with for zone in (shared if zones is None else zones)]
    return max(2, min(shares if shares < ledger.min_clients else shares - 1 for shares in needed))


def clients_covered(ledger: Book) -> str:
    """How many clients what is stated for views of clients covers."""
    return "one client" if ledger.colluders == 1 else f"{ledger.colluders} clients together"


def of_a_client(ledger: Book) -> str:
    """What the guarantee toward another client, or several, rests on."""
    return (
        f"a client sees the sums and subtracts its own upload from them; this covers {clients_covered(ledger)} that "
        f"look{'' if ledger.colluders > 1 else 's'} alone: more who collude subtract all of theirs, and no line "
        "covers that"
    )


def reads_uploads(ledger: Book, seen: list[str]) -> Nothing:
    """The server reads zones that nothing protects."""
    zones = listed_bare(ledger, seen)
    return Nothing(
        f"reads {few_words(zones, seen)} of every upload, without noise",
        f"sees the {zones} zone of every upload, without noise",
    )


def sees_sums(ledger: Book, seen: list[str], how: str = "") -> Nothing:
    """Somebody sees sums of zones without noise."""
    zones = listed_bare(ledger, seen)
    return Nothing(
        f"sees {sums_or_updates(ledger)} of {few_words(zones, seen)}, without noise",
        f"sees {how}{sums_or_updates(ledger, '')} of the {zones} zone{',' if how else ''} without noise",
    )


def adds_noise_itself(zones: list[str]) -> Nothing:
    """The server is trusted with what it adds noise to."""
    return Nothing(
        "adds the noise itself and sees the values without it",
        f"is trusted: adds the noise of the {listed(zones)} zone itself and sees what is below it",
    )


def noise_by_bare_values(scored: list[str], bare: list[str]) -> Nothing:
    """The noise of some zones has sizes that follow from what others released without any."""
    return Nothing(
        "the size of the noise follows from values without noise",
        f"sees the {listed(scored)} zone after noise that is scaled by scores, and these follow from a model that the "
        f"{listed(bare)} zone has moved without noise",
    )


def of_the_server(ledger: Book, plain: Iterable[str]) -> str:
    """What the guarantee toward the server rests on; it reads these zones of every upload."""
    because = f"sees the {listed(plain)} zone of every upload, after the noise" if plain else "sees noised sums"
    if not plain and ledger.min_clients < 2:
        because = "sees what may be one client's noised update, since min_clients is 1"
    if ledger.sealed:
        because += "; the rest as ciphertexts, as long as the encryption holds"
    if ledger.feedback.any():
        because += (
            f"; includes what other clients' noised uploads may reveal of a client whose {listed(ledger.bare)} zone, "
            "sent without noise, they were trained on"
        )
    return because


def nobody_holds_the_key(ledger: Book) -> Nothing:
    """Clients have shares of a key."""
    fewest = fewest_shares(ledger)
    return Nothing(
        f"nobody holds the key: {fewest} clients together could open an upload",
        f"nobody holds a key: {fewest} clients who collude with the server could open an upload", absent=True,
    )  # fmt: skip


def opens_before_the_noise(zones: list[str]) -> Nothing:
    """The key server gets sums to which the server adds noise afterwards."""
    return Nothing(
        "opens sums before the noise is added", f"opens sums of the {listed(zones)} zone before the noise is added"
    )


def of_the_key_server(ledger: Book) -> str:
    """What the guarantee toward the key server rests on."""
    if ledger.min_clients < 2:
        return "is sent sums, which may hold a single update, since min_clients is 1"
    return f"is sent sums of at least {ledger.min_clients} updates, never single ones"


def see_together(ledger: Book, bare: list[str]) -> Nothing:
    """A client and the server see zones without noise."""
    zones = listed_bare(ledger, bare)
    how = f"sees {sums_or_updates(ledger)} of" if sums_alone(ledger, bare) else "reads"
    return Nothing(
        f"{how} {few_words(zones, bare)}, without noise",
        f"sees the {zones} zone without noise, {how_bare(ledger, bare)}",
    )


def server_adds_noise(zones: list[str]) -> Nothing:
    """Who works with the server knows its noise."""
    return Nothing(
        "the server adds the noise and sees the values without it",
        f"the server adds the noise of the {listed(zones)} zone itself and sees what is below it",
    )


def of_both(ledger: Book, shared: list[str]) -> tuple[str, list[str]]:
    """What the guarantee toward the server with a client rests on, and assumes; shares open sums of these zones."""
    if not shared:
        return "sees every upload after the noise, decrypted where a client has the key", []
    fewest, several, covered = fewest_shares(ledger), ledger.colluders > 1, clients_covered(ledger)
    shares = f"the shares of {ledger.colluders} clients" if several else "one client's shares"
    words = listed(sorted({ledger.encryption[zone].component or zone for zone in shared}))
    return (
        f"sees sums of the {listed(shared)} zone, whose uploads {shares} do not open: those of {fewest} clients do. "
        f"This covers the server with {covered}; more subtract the noise of each of them"
    ), [
        f"as long as {covered}{' at most' if several else ' alone'} join{'' if several else 's'} the server; that "
        f"{fewest} clients are needed to open an upload is on the word of {words}"
    ]


def freed_values(links: list[str]) -> Nothing:
    """Links, each as `link in zone`, undo what noise did."""
    return Nothing(
        f"{links[0].partition(' ')[0]} changes values behind the noise with data in hand",
        f"{listed(links)} changes values behind the noise with data in hand, so there is no guarantee",
    )


def sees_uncovered(what: str, note: str) -> Nothing:
    """What a party is shown has no noise."""
    few = f"sees {what}, which no noise covers"
    if len(few.split()) > MOST_WORDS:
        few = "sees values that no noise covers; the ledger names them"
    return Nothing(few, f"sees {what}: {note}")


def uncovered_answers(notes: Sequence[str]) -> Nothing:
    """Answers are sent that nobody covers, or plain values were found."""
    first = next((note for note in notes if note != PLAIN_VALUES), PLAIN_VALUES)
    if first == PLAIN_VALUES:
        return Nothing("plain values of protected zones were found in messages", PLAIN_VALUES)
    return Nothing(
        f"{first.partition(' ')[0]} has answers sent that no statement covers",
        f"{first}, so there is no guarantee toward anybody",
    )
