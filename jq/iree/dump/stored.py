"""Constants and names in IREE's IR: what is stored, as what, and under which name."""

import os
import re
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from iree.compiler import ir

from jq.ir import Op


@dataclass(frozen=True)
class StoredConstant:
    """A tensor that the artifact stores, or one that is the same number everywhere.

    Attributes:
        shape, dtype: as stored, which may be a packed or a folded form of the weight.
        bytes: what it takes in the file.
        kind: `inline`, `global`, `parameter` (in the parameter file), or `splat`: one number in the
            program, which takes no room.
        names: every name in its location, innermost first, else its resource key or symbol."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    kind: str = "inline"

    @property
    def extent(self) -> int:
        """The bytes that its elements are: of a splat, too, which stands for as many."""
        return stored_bytes(self.shape, self.dtype)


# Names

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(:\d+:\d+)?')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


@cache
def _first_process() -> int:
    return os.getpid()


def compiler_context() -> ir.Context:
    """A context of IREE's compiler; without threads in a child of the process that had the first,
    where it would wait for those of its parent."""
    context = ir.Context()
    context.enable_multithreading(_first_process() == os.getpid())
    return context


def location_names(location: Any) -> tuple[str, ...]:
    """The names in a location, callee before caller; `"file":line:column` is none. The bindings
    give no access to the parts of a location, so its text is read."""
    found = (m[1] for m in _QUOTED.finditer(str(location)) if not m[2])
    return tuple(dict.fromkeys(_unescape(name) for name in found))


def _unescape(text: str) -> str:
    found = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], text)
    return found.encode("latin-1", "replace").decode(errors="replace")  # a byte an escape


# Constants

_PARAMETER = re.compile(r'#(?:flow|stream)\.parameter\.named<(?:"[^"]*"::)?"((?:[^"\\]|\\.)*)">')
_RESOURCE = re.compile(r'dense_resource<"?((?:[^">\\]|\\.)*)"?>')
CONSTANT_OPS = ("arith.constant", "flow.tensor.constant", "util.global")


def _value(op: Op) -> Any:
    return op.attributes.get("initial_value" if op.name == "util.global" else "value")


def resource_key(op: Op) -> str | None:
    """Identity of a constant's data: the key of its resource or parameter, if any."""
    text = str(_value(op))
    m = _RESOURCE.match(text) or _PARAMETER.match(text)
    return m[1] if m and m[1] != "__elided__" else None


def constant_of(op: Op, names: tuple[str, ...]) -> StoredConstant | None:
    tensor = op.attributes["type"].value if op.name == "util.global" else op.results[0].type
    if not isinstance(tensor, ir.RankedTensorType):
        return None
    shape, dtype, value = tuple(tensor.shape), str(tensor.element_type), _value(op)
    splat = isinstance(value, ir.DenseElementsAttr) and value.is_splat
    kind = "splat" if splat else "global" if op.name == "util.global" else "inline"
    if value is None:
        kind = "derived"
    elif m := _PARAMETER.match(str(value)):
        kind, names = "parameter", (_unescape(m[1]), *names)
    symbol = op.attributes["sym_name"].value if op.name == "util.global" else ""
    size = 0 if kind == "splat" else stored_bytes(shape, dtype)
    return StoredConstant(names or (resource_key(op) or symbol,), shape, dtype, size, kind)


def stored_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a dense tensor: i4 is packed two a byte, i1 takes a byte."""
    return (prod(shape) * bit_width(dtype) + 7) // 8


def bit_width(dtype: str) -> int:
    """Bits that one stored element takes."""
    m = re.search(r"\d+", dtype)
    bits = max(int(m[0]), 1) if m else 64  # `index`
    return 8 if bits == 1 else 2 * bits if dtype.startswith("complex") else bits
