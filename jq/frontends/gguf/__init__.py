"""GGUF files as parameters: tensors stay in their blocks, memory-mapped and not copied."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import as_path, mapped
from jq.formats import Encoding, Leaf, QuantizedTensor, get_format
from jq.frontends.gguf.header import Header, TensorInfo, read_header

# A part of a model: NAME-00001-of-00003.gguf.
_NAME = re.compile(r"(.*-)([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE)
_MOST = 1000  # parts
MAGIC = b"GGUF"


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
            [out, in]."""

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
                node = node.setdefault(scope, {}) if isinstance(node, dict) else node
            if not isinstance(node, dict) or last in node:
                what = "tensor names do not form a tree: one is a prefix of another"
                hint = "use the flat `tensors` instead of `params`"
                raise UserError(what, op=name, location=str(self.path), hint=hint)
            node[last] = tensor
        return tree


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
        ```"""
    data, header = open_gguf(as_path(path))
    tensors = {name: _tensor(data, info, path) for name, info in header.tensors.items()}
    return GgufFile(as_path(path), header.version, header.metadata, tensors)


def describe_gguf(path: str | Path) -> list[TensorRow]:
    """Name, shape, type and size of every tensor, types that cannot be loaded included."""
    _, header = open_gguf(as_path(path))
    return [TensorRow(t.name, t.shape, t.type.name, t.nbytes) for t in header.tensors.values()]


def open_gguf(path: Path) -> tuple[Any, Header]:
    """The bytes of a GGUF file, mapped into memory, and what its header says.

    Raises:
        UserError: it cannot be read, or is damaged in one of the ways that `load_gguf` refuses."""
    data = mapped(path)
    return data, read_header(data, str(path))


def _tensor(data: Any, info: TensorInfo, path: str | Path) -> Leaf:
    kind = info.type
    if kind.dtype is not None:
        count = info.nbytes // kind.dtype.itemsize
        return np.frombuffer(data, kind.dtype, count, info.offset).reshape(info.shape)
    if kind.format is None:
        what = f"tensor {info.name!r} has ggml type {kind.name}, which is not supported"
        hint = "requantize the file with a supported type such as Q8_0 or Q4_K"
        raise UserError(what, location=f"{path}, byte {info.offset}", hint=hint)
    block = get_format(kind.format).default_block(info.shape, -1)
    assert block is not None
    encoding = Encoding(kind.format, info.shape, block)
    raw = np.frombuffer(data, np.int8, info.nbytes, info.offset)
    ((name, (shape, _)),) = get_format(kind.format).storage(encoding).items()
    return QuantizedTensor(encoding, {name: raw.reshape(shape)}, info.name)


def is_gguf(path: Path) -> bool:
    """True if a file is one by its name, or begins as one: some tools name them by digest."""
    if path.suffix.lower() == ".gguf":
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def parts_of(path: Path) -> list[Path]:
    """All files of a model that one of them names, in order; it alone where it is no part."""
    match = _NAME.fullmatch(path.name)
    count = int(match[3]) if match else 0
    if match is None or not 1 <= int(match[2]) <= count <= _MOST:
        return [path]
    before, _, _, after = match.groups()
    return [path.with_name(f"{before}{i:05}-of-{count:05}{after}") for i in range(1, count + 1)]


def load_parts(path: Path) -> GgufFile:
    """A model of one file, or of those its name tells of: metadata of the first, tensors of all.

    Raises:
        UserError: a part is missing, or is no part of this model; and as `load_gguf`."""
    paths = parts_of(path)
    first = load_gguf(paths[0])
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or count not in (1, len(paths)):
        hint = "name them NAME-00001-of-00003.gguf and so on, or join them: "
        hint += "llama-gguf-split --merge FIRST_PART JOINED.gguf"
        what = f"this is one of {count!r:.20} parts of a model"
        raise UserError(what, location=str(path), hint=hint)
    if count == 1:
        return load_gguf(path)
    tensors = dict(first.tensors)
    for number, part in enumerate(paths):
        file = first if number == 0 else load_gguf(part)
        said = (file.metadata.get("split.no"), file.metadata.get("split.count"))
        if said != (number, count):
            raise UserError(f"this is no part {number + 1} of {count}", location=str(part))
        if number and (twice := tensors.keys() & file.tensors.keys()):
            raise UserError(f"tensor {min(twice)!r} is in two parts", location=str(part))
        tensors |= file.tensors
    total = first.metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise UserError(f"the parts hold {len(tensors)} of {total} tensors", location=str(path))
    return replace(first, tensors=tensors)
