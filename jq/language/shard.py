"""A `.safetensors` file written as its tensors are made: the package wants all of them at once.

Layout: u64 length of a JSON header, the header, the data. Source: the format's own description at
https://github.com/huggingface/safetensors.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "bool": "BOOL"}


@dataclass(frozen=True)
class Entry:
    """A tensor to be written; `pieces` gives its data, one part after the other."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[np.ndarray]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """The format's name of its type."""
        name = self.dtype.name
        return _NAMES.get(name) or f"{self.dtype.kind.upper()}{8 * self.dtype.itemsize}"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name."""
    entries = [Entry(n, a.dtype, a.shape, partial(iter, [a])) for n, a in arrays.items()]
    write_shard(path, entries, lambda share: None)


def write_shard(path: Path, entries: Sequence[Entry], told: Callable[[float], None]) -> None:
    """Writes all entries; `told` hears the share that is done."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for e in entries:
        where = [offset, offset + e.nbytes]
        header[e.name] = {"dtype": e.kind, "shape": list(e.shape), "data_offsets": where}
        offset += e.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()
        for e in entries:
            first = file.tell()
            for piece in e.pieces():
                file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
                told((file.tell() - start) / max(offset, 1))
            assert file.tell() - first == e.nbytes, e.name
