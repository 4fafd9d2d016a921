"""Draws the diagrams of docs/pictures: one round, the zones of an update, how to choose a protocol.

    python docs/diagrams.py

Text that does not fit its box is an error. The pictures have no background and follow the reader's colour scheme.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
STYLE = """
  text { fill: #1f2328 } .soft { fill: #59636e } .strong { font-weight: 600 }
  .code { font-family: ui-monospace, monospace } .box { fill: #f6f8fa; stroke: #8c959f }
  .client { fill: #ddf4ff; stroke: #54aeff } .keys { fill: #fff8c5; stroke: #d4a72c }
  .answer { fill: #dafbe1; stroke: #4ac26b } .line { stroke: #8c959f; fill: none } .head { fill: #8c959f }
  .encrypted { fill: #8250df } .noised { fill: #bf8700 } .clear { fill: #3b7dd8 } .retained { fill: #6e7781 }
  .ink { fill: #ffffff; font-weight: 600 }
  .closed { fill: #1a7f37; stroke: #1a7f37 } .open { fill: #cf222e; stroke: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .soft { fill: #9198a1 } .box { fill: #151b23; stroke: #656c76 }
    .client { fill: #0c2d4a; stroke: #1f6feb } .keys { fill: #3a2d08; stroke: #9e6a03 }
    .answer { fill: #0f2d1a; stroke: #2ea043 } .line { stroke: #656c76 } .head { fill: #656c76 } .ink { fill: #ffffff }
    .closed { fill: #3fb950; stroke: #3fb950 } .open { fill: #ff7b72; stroke: #ff7b72 }
  }
"""
_CHARACTER = 0.56
"""Width of a character relative to its size, in a sans-serif font; a generous mean."""


class Diagram:
    """Collects the parts of one picture.

    Args:
        width, height: in pixels at full size.
        title: describes it for readers who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title, self.parts = width, height, title, list[str]()

    def text(
        self, x: float, y: float, words: str, kind: str = "", size: float = 14, anchor: str = "start",
        room: float | None = None,
    ) -> None:  # fmt: skip
        """A line of text with its baseline at y; `room` is its maximum width.

        Raises:
            ValueError: the text does not fit.
        """
        wide = len(words) * size * (_CHARACTER + (0.05 if "code" in kind or "strong" in kind else 0.0))
        if room is not None and wide > room:
            raise ValueError(f"{self.title}: {words!r} needs {wide:.0f} pixels and has {room:.0f}")
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
        if left < 0 or left + wide > self.width or not 0 < y < self.height:
            raise ValueError(f"{self.title}: {words!r} leaves the picture")
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}">'
            f"{html.escape(words)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, *lines: tuple[str, str]) -> None:
        """A box with centred lines of text, each with its kind."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>')
        top = y + height / 2 - (len(lines) - 1) * 9.5 + 5
        for number, (words, of) in enumerate(lines):
            self.text(x + width / 2, top + 19 * number, words, of, 14, "middle", width - 12)

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through these points with a head at the last, which is to the left or right, or below."""
        path = " ".join(f"{'M' if not i else 'L'} {x:g} {y:g}" for i, (x, y) in enumerate(points))
        (x0, _), (x, y) = points[-2:]
        side = (x > x0) - (x < x0)
        back = ((x - 9 * side, y - 5), (x - 9 * side, y + 5)) if side else ((x - 5, y - 9), (x + 5, y - 9))
        head = " ".join(f"{a},{b}" for a, b in ((x, y), *back))
        self.parts.append(f'<path class="line" stroke-width="1.5" d="{path}"/><polygon class="head" points="{head}"/>')

    def lock(self, x: float, y: float, closed: bool) -> None:
        """A padlock of 14 by 18 pixels with its upper left corner at (x, y)."""
        kind, lift = ("closed", 0) if closed else ("open", -3)
        bow = f"M {x + 3} {y + 9} V {y + 5 + lift} a 4 4 0 0 1 8 0" + (f" V {y + 9}" if closed else "")
        self.parts.append(
            f'<g class="{kind}"><rect x="{x:g}" y="{y + 8:g}" width="14" height="10" rx="2"/>'
            f'<path d="{bow}" style="fill: none" stroke-width="2"/></g>'
        )

    def svg(self) -> str:
        """The picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{html.escape(self.title)}" '
            "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\">\n"
            f"<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


def one_round() -> Diagram:
    """A round with an encrypted and a noised zone and a key server, and the data that each party can read."""
    drawn = Diagram(960, 600, "One round: who does what, and who can read which part of an update")
    lanes = {"clients": (150, "client"), "server": (480, "box"), "key server": (810, "keys")}
    for name, (x, kind) in lanes.items():
        drawn.parts.append(f'<path class="line" stroke-dasharray="3 4" d="M {x} 48 V 458"/>')
        drawn.box(x - 110, 14, 220, 34, kind, (name, "strong"))
    client, server, keys = (x for x, _ in lanes.values())

    def does(x: float, y: float, hook: str, said: str) -> None:
        drawn.box(x - 130, y, 260, 46, "box", (hook, "code"), (said, "soft"))

    def goes(y: float, a: float, b: float, said: str) -> None:
        drawn.arrow((a, y), (b, y))
        drawn.text((a + b) / 2, y - 7, said, "soft", 13, "middle", abs(a - b) - 20)

    does(client, 62, "score_parameters", "how sensitive is each value?")
    does(client, 118, "negotiate_mask", "votes for what to encrypt")
    goes(186, client, server, "ballot, encrypted or not")
    goes(214, server, client, "the mask, for all clients")
    does(client, 228, "protect", "clip, add noise, encrypt")
    zones = ((client - 130, 150, "encrypted", "encrypted"), (client + 20, 110, "noised", "noised"))
    for x, width, kind, name in zones:
        drawn.parts.append(f'<rect x="{x}" y="280" width="{width}" height="26" class="{kind}"/>')
        drawn.text(x + width / 2, 298, name, "ink", 13, "middle", width)
    goes(330, client, server, "one upload a client")
    does(server, 340, "aggregate", "sums, without the key")
    goes(412, server, keys, "the encrypted sum")
    goes(436, keys, server, "the opened sum")
    does(server, 446, "postprocess", "the new model, for all clients")
    reads = {
        client: (("its own update", False), ("updates of others", True), ("the new model", False)),
        server: (("encrypted zone of an update", True), ("noised zone, with its noise", False), ("opened sums", False)),
        keys: (("updates of clients", True), ("sums of enough clients", False)),
    }
    for x, lines in reads.items():
        for row, (said, closed) in enumerate(lines):
            drawn.lock(x - 118, 506 + 28 * row, closed)
            drawn.text(x - 94, 521 + 28 * row, said, "", 14, room=220)
    return drawn


def zones() -> Diagram:
    """One update as a bar: the treatment of each part, and the server's view of it."""
    drawn = Diagram(960, 190, "The zones of one update, and what the server sees of each")
    parts = (
        ("encrypted", 260, "BFV, CKKS, masks", "ciphertext; only sums open", True),
        ("noised", 300, "clip, then Gaussian or Laplace noise", "values with noise", False),
        ("clear", 200, "nothing", "values as they are", False),
        ("retained", 180, "never sent", "nothing", True),
    )
    drawn.text(10, 26, "one update: every parameter is in exactly one zone", "strong", 15)
    x = 10
    for name, width, how, sees, closed in parts:
        drawn.parts.append(f'<rect x="{x}" y="42" width="{width - 4}" height="48" class="{name}"/>')
        drawn.text(x + width / 2 - 2, 72, name, "ink", 16, "middle", width - 8)
        drawn.text(x + width / 2 - 2, 114, how, "soft", 13, "middle", width - 6)
        drawn.lock(x + 8, 132, closed)
        drawn.text(x + 30, 147, sees, "", 13, room=width - 36)
        x += width
    drawn.text(10, 180, "Green: the server cannot read it. Red: it can.", "soft", 13)
    return drawn


def choose() -> Diagram:
    """The choice of a protocol, by requirement."""
    drawn = Diagram(960, 620, "Choosing a protocol: who may see an update, and must the model hide each client?")
    high = 58

    def ask(x: float, y: float, words: str, more: str) -> None:
        drawn.box(x, y, 264, high, "box", (words, "strong"), (more, "soft"))

    def answer(y: float, words: str, more: str) -> None:
        drawn.box(664, y, 286, high, "answer", (words, "code"), (more, "soft"))

    def leads(when: str, x: float, y: float, to_x: float, to_y: float) -> None:
        bend, up = x + 18, y + high / 2
        drawn.arrow((x, up), (bend, up), (bend, to_y + high / 2), (to_x, to_y + high / 2))
        drawn.text(to_x - 10, to_y + high / 2 - 6, when, "strong", 13, "end")

    ask(10, 240, "May the server see", "the update of one client?")
    ask(334, 60, "Must the model hide", "what one client had?")
    ask(334, 360, "Must the model hide", "what one client had?")
    leads("yes", 274, 240, 334, 60)
    leads("no", 274, 240, 334, 360)
    answers = (
        (10, "fedavg", "no protection; measure what leaks", "no", 60),
        (100, "central-dp-fedavg", "the server adds the noise", "yes", 60),
        (210, "bfv-fedavg", "with a second server, for the key", "no", 360),
        (280, "threshold-fedavg", "without: clients open sums", "no", 360),
        (370, "secagg-distributed-dp", "a hundred clients, shared noise", "yes", 360),
        (440, "threshold-distributed-dp", "few clients, shared noise", "yes", 360),
        (510, "dp-fedavg", "each client adds all the noise", "yes", 360),
    )
    for y, words, more, when, start in answers:
        answer(y, words, more)
        leads(when, 598, start, 664, y)
    said = "Names are recipes: fedplug run NAME. The verdict of a run says whether the answer holds."
    drawn.text(10, 608, said, "soft", 14)
    return drawn


def choose_phone() -> Diagram:
    """The same for a telephone: a tree from the top to the bottom, in letters that can be read at 360 pixels."""
    drawn = Diagram(360, 722, "Choosing a protocol: who may see an update, and must the model hide each client?")

    def node(
        x: float, y: float, kind: str, words: str, more: str, when: str = "", from_x: float = 0, top: float = 0
    ) -> None:  # fmt: skip
        drawn.box(x, y, 350 - x, 52, kind, (words, "code" if kind == "answer" else "strong"), (more, "soft"))
        if when:
            drawn.arrow((from_x, top), (from_x, y + 26), (x, y + 26))
            drawn.text(x - 8, y + 20, when, "strong", 12, "end")

    node(10, 10, "box", "May the server see", "the update of one client?")
    hides = ("Must the model hide", "what one client had?")
    node(52, 72, "box", *hides, "yes", 16, 62)
    node(94, 134, "answer", "fedavg", "no protection; measure leaks", "no", 58, 124)
    node(94, 194, "answer", "central-dp-fedavg", "the server adds the noise", "yes", 58, 124)
    node(52, 264, "box", *hides, "no", 16, 62)
    answers = (
        ("bfv-fedavg", "a second server holds the key", "no"), ("threshold-fedavg", "clients open sums", "no"),
        ("secagg-distributed-dp", "a hundred clients, shared noise", "yes"),
        ("threshold-distributed-dp", "few clients, shared noise", "yes"),
        ("dp-fedavg", "each client adds all the noise", "yes"),
    )
    for place, (words, more, when) in enumerate(answers):
        node(94, 326 + 60 * place, "answer", words, more, when, 58, 316)
    for y, said in ((648, "Names are recipes: fedplug run NAME."), (668, "The verdict of a run says whether"),
                    (688, "the answer holds.")):  # fmt: skip
        drawn.text(10, y, said, "soft", 14)
    return drawn


DIAGRAMS: dict[str, Callable[[], Diagram]] = {
    "round": one_round, "zones": zones, "choose": choose, "choose-phone": choose_phone,
}  # fmt: skip

if __name__ == "__main__":
    for name, made in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(made().svg(), encoding="utf-8")
        print(f"drew docs/pictures/{name}.svg")
