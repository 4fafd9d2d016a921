"""A component in the user's own file, and a recipe that names it."""

from __future__ import annotations

HALVE = """\
import fedplug
from fedplug import Field, Scale


class Halve(fedplug.Protector):
    \"\"\"Take half of every value.\"\"\"

    class Options(fedplug.Options):
        factor: float = Field(0.5, gt=0, description="share that is kept")

    def protect(self, known, facts):
        return (Scale(self.options.factor),)


class Median:
    \"\"\"No component.\"\"\"


number = 3
"""

RECIPE = """\
name: mine
seed: 1
rounds: 1
data: {use: std.digits, clients: 2, partition: std.iid, train_size: 40, test_size: 20}
model: {use: std.mlp, hidden: [4]}
train: std.sgd
negotiate_mask: {use: std.single_zone, zone: clear}
protect: {clear: [{use: "own/halve.py:Halve", factor: 0.25}]}
aggregate: std.mean
"""
