"""A float weight that is held as the parts of a number format."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.formats import Encoding
from jq.ir.encodings import write_encodings
from jq.ir.markers import dequantize
from jq.ir.mlir_context import context
from jq.ir.program import Program
from jq.ir.types import dtype_of


def store_weight(
    program: Program, name: str, enc: Encoding, arrays: Mapping[str, np.ndarray]
) -> None:
    """Replaces the uses of one float weight by a dequantize of its parts.

    The parts become the weights `name:part`; the float weight itself is left without uses.
    """
    weight = program.weight(name)
    weight.replace_all_uses_with(store(program, name, enc, arrays, dtype_of(weight)))


def store(
    program: Program, name: str, enc: Encoding, arrays: Mapping[str, np.ndarray], dtype: Any
) -> ir.Value:
    """The float tensor of `dtype` that new weights `name:part` stand for.

    The name gets `#2`, `#3`, ... when another tensor is stored under it.
    """
    unique, n = name, 1
    while any(f"{unique}:{k}" in program.weights for k in arrays):
        n += 1
        unique = f"{name}#{n}"
    parts = {k: program.add_weight(f"{unique}:{k}", v) for k, v in arrays.items()}
    with context(), ir.InsertionPoint.at_block_begin(program.body), ir.Location.name(unique):
        value = dequantize(program, enc, parts, dtype, tensor=unique)
    program.encodings[unique] = describe(enc, arrays, dtype)
    write_encodings(program)
    return value


def drop_unused_encodings(program: Program) -> None:
    """Forgets how tensors were stored of which no part is a weight any more."""
    held = {name.rpartition(":")[0] for name in program.weights}
    for name in [n for n in program.encodings if n not in held]:
        del program.encodings[name]
    write_encodings(program)


def describe(enc: Encoding, arrays: Mapping[str, np.ndarray], dtype: Any) -> dict[str, Any]:
    """An entry of `Program.encodings`: how a weight of float type `dtype` is stored."""
    return {
        "format": enc.format,
        "shape": list(enc.shape),
        "block": list(enc.block),
        "scheme": enc.scheme,
        "scale_type": enc.scale_type,
        "options": dict(enc.options),
        "granularity": enc.granularity,
        "parts": describe_parts(arrays),
        "float_dtype": np.dtype(dtype).name,
    }


def describe_parts(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Types and shapes of the parts, for such an entry."""
    return {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in arrays.items()}
