"""LPIPS, a perceptual distance learnt on top of an ImageNet classifier; the user must provide its weights.

The classifier's weights cannot be bundled, and nothing is downloaded. The learnt linear layers (version 0.1 of LPIPS)
come with torchmetrics.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Literal

import fedplug
import numpy as np
from fedplug import Field, Measures
from fedplug.api.errors import MetricError

from fedplug_attacks import AttackReport, Truth
from fedplug_attacks.image_metrics import image_pair, torchmetrics_image

Net = Literal["alex", "vgg", "squeeze"]

# As torchvision names the files it publishes, each with a part of its hash: alexnet-owt-7be5be79.pth.
_FILES: dict[str, str] = {"alex": "alexnet-owt-*.pth", "vgg": "vgg16-*.pth", "squeeze": "squeezenet1_1-*.pth"}
# Below these sizes, one of the network's poolings has nothing left to pool.
_SMALLEST: dict[str, int] = {"alex": 31, "vgg": 16, "squeeze": 17}
_VALUES_AT_ONCE = 1 << 20  # of one side; VGG makes about 100 times as many in its first layers


class Lpips(fedplug.Metric):
    """Learned perceptual image patch similarity (LPIPS; Zhang et al. 2018), from a folder with network weights."""

    measures = Measures(
        kind="images",
        better={"lpips": "low"},
        conventions=(
            "images in [0, 1]; at least 31x31 pixels (alex), 16x16 (vgg) or 17x17 (squeeze), not resized; gray is "
            "repeated in three channels; LPIPS 0.1, linear layers as published, network as in the folder; 0 for "
            "equal images"
        ),
    )

    class Options(fedplug.Options):
        folder: str = Field(
            description="folder with torchvision's weights of the network: alexnet-owt-*.pth, vgg16-*.pth or "
            "squeezenet1_1-*.pth; nothing is downloaded"
        )
        net: Net = Field("alex", description="the network; alex is the one LPIPS' authors compare images with")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`lpips`, the mean over images.

        Raises:
            MetricError: the weights are missing or are not those of the network; or the images are none, not of one
                shape, not finite, not in [0, 1], too small for the network or of neither 1 nor 3 channels.
        """
        net = self.options.net
        pair = image_pair(found, truth, "lpips", _SMALLEST[net], f"the poolings of {net}")
        channels = pair[1].shape[1]
        if channels not in (1, 3):
            raise MetricError(f"lpips: images of {channels} channels must have 3 or 1 (gray); use attacks.ssim instead")
        network = _network(net, _weights_file(Path(self.options.folder).expanduser(), net))

        import torch

        sides = (torch.from_numpy(side.astype(np.float32)).expand(-1, 3, -1, -1) for side in pair)
        batch = max(1, _VALUES_AT_ONCE // pair[1][0, 0].size // 3)
        with torch.no_grad():
            batches = zip(*(torch.split(side, batch) for side in sides), strict=True)
            # It wants [-1, 1], which `normalize` makes of [0, 1].
            distances = torch.cat([network(*images, normalize=True).flatten() for images in batches])
        return {"lpips": float(distances.double().mean())}

    def describe(self) -> str:
        return f"{self.options.net}, weights from {self.options.folder}"


def _weights_file(folder: Path, net: str) -> Path:
    files = sorted(folder.glob(_FILES[net]))
    if len(files) != 1:
        there = f"holds {len(files)} such files" if folder.is_dir() else "is not a folder"
        raise MetricError(
            f"lpips is unavailable: it needs one file {_FILES[net]} in folder={folder}, which {there}; put "
            f"torchvision's published weights of {net} there, or leave the metric out"
        )
    return files[0]


@functools.lru_cache(maxsize=1)
def _network(net: str, path: Path) -> Any:
    """torchmetrics' LPIPS module, its backbone filled from a file of torchvision.

    Raises:
        MetricError: the file cannot be read, or is not of this network.
    """
    lpips = torchmetrics_image().lpips

    import torch
    from fedplug_std.torch_model import seeded

    with seeded(0):  # it draws weights first, all of which are replaced
        network = lpips._NoTrainLpips(net=net, pnet_rand=True)
    try:
        published = torch.load(path, map_location="cpu", weights_only=True)
        # The slices keep the numbers of torchvision's layers: slice2.3.weight and slices.1.3.weight are features.3.
        own = {key: "features." + re.sub(r"^slice(s\.)?\d+\.", "", key) for key in network.net.state_dict()}
        network.net.load_state_dict({key: published[name] for key, name in own.items()})
    except Exception as error:  # torch.load raises whatever a damaged pickle leads to
        raise MetricError(
            f"lpips is unavailable: {path} must hold torchvision's weights of {net} (a state_dict with features.*), "
            f"and cannot be used: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}; download "
            "it again, or leave the metric out"
        ) from error
    if not all(torch.isfinite(weights).all() for weights in network.state_dict().values()):
        raise MetricError(f"lpips is unavailable: weights in {path} are NaN or infinite; download it again")
    return network
