"""Sketch: a model."""

import fedplug
import numpy as np
from fedplug import Field, Model


class Thing(fedplug.ModelSource):
    """Two fully connected layers with tanh between them."""

    class Options(fedplug.Options):
        hidden: int = Field(32, ge=1, description="width of the hidden layer")

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """The weights depend on the seed alone. torch is imported here, so that `fedplug check` is quick."""
        import torch
        from fedplug_std.torch_model import TorchModel, seeded

        with seeded(seed):
            module = torch.nn.Sequential(
                torch.nn.Flatten(),
                torch.nn.Linear(int(np.prod(shape)), self.options.hidden),
                torch.nn.Tanh(),
                torch.nn.Linear(self.options.hidden, num_classes),
            )
        return TorchModel(module, device)
