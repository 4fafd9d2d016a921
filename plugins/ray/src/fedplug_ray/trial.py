"""A trial on one machine: two Ray nodes simulate two machines. It compares a run on them with a run on `local`.

    python -m fedplug_ray.trial RECIPE [--set PATH=VALUE]

Each node has one CPU, so each gets one of the two workers. If the recipe's randomness follows from its seed, both runs
end with the same model, bit for bit. The exit code is 1 if the models differ.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

import fedplug
from fedplug.api.errors import FedplugError


def main() -> int:
    """Runs the recipe twice and compares the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", action="append", dest="sets", metavar="PATH=VALUE")
    arguments = parser.parse_args()
    try:
        return 0 if same(arguments.recipe, arguments.sets) else 1
    except FedplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def same(recipe: str, sets: list[str] | None) -> bool:
    """Whether the run on two nodes ends with the same model as the run in this process."""
    # Set this before importing Ray, which would put a token into a file that all users of the machine can read.
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder:
        # The head also writes its address there, whatever its folder is. Ray does not create this folder.
        os.environ["RAY_TMPDIR"] = folder
        (Path(folder) / "ray").mkdir()
        print("running in this process:")
        alone = fedplug.run(recipe, sets, engine="local", output=folder)
        print("starting two nodes with one CPU each")
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            nodes.add_node(num_cpus=1)
            print(f"running on the Ray at {nodes.address}:")
            far = fedplug.run(recipe, sets, engine={"use": "ray", "address": nodes.address}, workers=2, output=folder)
        finally:
            nodes.shutdown()
        mine, theirs = alone.model.state_dict(), far.model.state_dict()
    equal = all(bool((mine[name] == theirs[name]).all()) for name in mine)
    print("the two models are equal, bit for bit" if equal else "THE TWO MODELS DIFFER")
    return equal


if __name__ == "__main__":
    sys.exit(main())
