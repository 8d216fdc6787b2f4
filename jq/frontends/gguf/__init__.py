"""GGUF files as parameters: tensors stay in their blocks, memory-mapped and not copied."""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import check_input
from jq.formats.base import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.frontends.gguf.header import Header, TensorInfo, read_header

__all__ = ["GgufFile", "TensorRow", "describe_gguf", "load_gguf", "open_gguf"]

Leaf = np.ndarray | QuantizedTensor


class TensorRow(NamedTuple):
    """Description of a tensor by `describe_gguf`: NumPy shape, ggml type, bytes in the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int


@dataclass(frozen=True)
class GgufFile:
    """A loaded file.

    Attributes:
        path: where it came from.
        version: of the file format, 2 or 3.
        metadata: key -> str, bool, int, float, NumPy array of numbers, or list.
        tensors: name -> tensor, in file order. Block types are `QuantizedTensor`, the others
            read-only arrays over the mapped file. Shapes are NumPy's: a linear weight is
            [out, in].
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Leaf]

    @property
    def params(self) -> dict[str, Any]:
        """The tensors as nested dicts, names split at dots: `blk.0.attn_q.weight` is
        `params["blk"]["0"]["attn_q"]["weight"]`."""
        tree: dict[str, Any] = {}
        for name, tensor in self.tensors.items():
            *scopes, last = name.split(".")
            node = tree
            for scope in scopes:
                node = node.setdefault(scope, {})
                if not isinstance(node, dict):
                    raise self._no_tree(name)
            if last in node:
                raise self._no_tree(name)
            node[last] = tensor
        return tree

    def _no_tree(self, name: str) -> UserError:
        return UserError(
            "tensor names do not form a tree: one is a prefix of another",
            op=name,
            location=str(self.path),
            hint="use the flat `tensors` instead of `params`",
        )


def load_gguf(path: str | Path) -> GgufFile:
    """Reads a GGUF file (version 2 or 3, little endian) by memory map.

    Args:
        path: the file.

    Raises:
        UserError: the file cannot be read, is damaged (with byte offset and reason, before
            anything is allocated for what it claims), or has a tensor type we do not decode.

    Returns:
        A `GgufFile`: `metadata` by key, `tensors` by name in the order of the file, and `params`,
        the same tensors as nested dictionaries. Tensors in blocks are `QuantizedTensor`.

    Example:
        ```python
        file = jq.load_gguf("model.gguf")
        print(file.metadata["general.architecture"], list(file.tensors)[:2])
        ```
    """
    data, header = open_gguf(Path(path))
    tensors = {name: _tensor(data, info, path) for name, info in header.tensors.items()}
    return GgufFile(Path(path), header.version, header.metadata, tensors)


def describe_gguf(path: str | Path) -> list[TensorRow]:
    """Name, shape, type and size of every tensor, types that cannot be loaded included."""
    _, header = open_gguf(Path(path))
    return [TensorRow(t.name, t.shape, t.type.name, t.nbytes) for t in header.tensors.values()]


def open_gguf(path: Path) -> tuple[Any, Header]:
    """The bytes of a GGUF file, mapped into memory, and what its header says.

    Raises:
        UserError: it cannot be read, or is damaged in one of the ways that `load_gguf` refuses.
    """
    check_input(path)
    try:
        with path.open("rb") as file:
            empty = path.stat().st_size == 0  # which cannot be mapped
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(path)) from error
    return data, read_header(data, str(path))


def _tensor(data: Any, info: TensorInfo, path: str | Path) -> Leaf:
    kind = info.type
    if kind.dtype is not None:
        count = info.nbytes // kind.dtype.itemsize
        return np.frombuffer(data, kind.dtype, count, info.offset).reshape(info.shape)
    if kind.format is None:
        raise UserError(
            f"tensor {info.name!r} has ggml type {kind.name}, which is not supported",
            location=f"{path}, byte {info.offset}",
            hint="requantize the file with a supported type such as Q8_0 or Q4_K",
        )
    block = get_format(kind.format).default_block(info.shape, -1)
    assert block is not None
    encoding = Encoding(kind.format, info.shape, block)
    raw = np.frombuffer(data, np.int8, info.nbytes, info.offset)
    ((name, (shape, _)),) = get_format(kind.format).storage(encoding).items()
    return QuantizedTensor(encoding, {name: raw.reshape(shape)}, info.name)
