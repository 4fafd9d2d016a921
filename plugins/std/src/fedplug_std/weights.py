"""Weights of a torch module in a file: what `torch.save` wrote of a state dict, or safetensors. No code in it runs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence

import torch
from fedplug.api.errors import SetupError, cause_of

_WRONG = 4
"""Names that a message lists."""
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def read(file: str, content: bytes, what: str, within: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """The tensors of a file, by name.

    Args:
        file: its name, whose ending says how it is written.
        content: what it holds.
        what: what the file is, for messages.
        within: names under which a saved dictionary may hold the state dict, next to other things.

    Raises:
        SetupError: the file cannot be read.
    """
    try:
        return dict(_safetensors(content) if file.endswith(".safetensors") else _state_dict(content, within))
    except Exception as error:  # the file may be of any kind
        raise SetupError(f"{what} {file} cannot be read ({cause_of(error)}); save a state dict again") from error


def put(
    module: torch.nn.Module, given: Mapping[str, torch.Tensor], said: str, remedy: str, without: Sequence[str] = ()
) -> None:
    """Gives a module the weights of a file, converted to the dtypes that it has.

    Args:
        module: gets them.
        given: what the file holds.
        said: what the file is, and its name.
        remedy: what to do where it belongs to another module.
        without: starts of names that the file may have and the module does not need, such as those of a head.

    Raises:
        SetupError: the file belongs to another module.
    """
    own = module.state_dict(keep_vars=True)
    places = {tensor.data_ptr() for name, tensor in own.items() if name in given}
    missing = [name for name, tensor in own.items() if name not in given and tensor.data_ptr() not in places]  # tied
    strange = [name for name in given if name not in own and not name.startswith(tuple(without))]
    shapes = [
        f"{name} {tuple(given[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in given and given[name].shape != tensor.shape
    ]
    for wrong, names in (("lacks", missing), ("has the unknown", strange), ("has other shapes:", shapes)):
        if names:
            more = f" and {len(names) - _WRONG} more" if len(names) > _WRONG else ""
            raise SetupError(
                f"{said} does not fit this model: it {wrong} {', '.join(names[:_WRONG])}{more}; {remedy}"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            if name in given:
                tensor.copy_(given[name])


def _state_dict(content: bytes, within: Sequence[str]) -> dict[str, torch.Tensor]:
    """Loads weights only: code in the file does not run."""
    found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if isinstance(found, dict):
        found = next((found[name] for name in within if isinstance(found.get(name), dict)), found)
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise ValueError("it holds no dictionary from names to tensors")
    return found


def _safetensors(content: bytes) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of the format: the length of a JSON header in eight bytes, the header, the values."""
    length = int.from_bytes(content[:8], "little")
    header, values = json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]
    for name, about in header.items():
        if name != "__metadata__":
            start, end = about["data_offsets"]
            held = torch.frombuffer(bytearray(values[start:end]), dtype=torch.uint8)
            yield name, held.view(_DTYPES[about["dtype"]]).view(about["shape"])
