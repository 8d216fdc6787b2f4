"""Encodings as attributes: the marker of fake quantization, and `jq.encodings` of a module.

A call of `jq.fake_quant` is one composite in a traced model. Without %low and %high the range is
that of %x itself.

    %y = stablehlo.composite "jq.fake_quant" %x, %low, %high {composite_attributes = {
        format = "int8", scheme = "asymmetric", block = "0,0"}, decomposition = ...}"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.base.registry import unused
from jq.formats import Encoding
from jq.ir.build import attribute, plain
from jq.ir.markers import dequantize, encoding_attributes, encoding_of, marker_kind
from jq.ir.mlir_context import context, editing
from jq.ir.program import Program
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op

FAKE_QUANT = "jq.fake_quant"


@dataclass(frozen=True)
class FakeQuant:
    """A marker read back; `low` and `high` have the shape of the encoding's grid."""

    op: Op
    x: ir.Value
    low: ir.Value | None
    high: ir.Value | None
    encoding: Encoding


def attributes_of(enc: Encoding) -> Mapping[str, str]:
    """The marker's attributes for an encoding; the shape is that of its operand."""
    block = ",".join(map(str, enc.block))
    said = {"format": enc.format, "scheme": enc.scheme, "block": block}
    kept = {"scale_type": enc.scale_type} if enc.scale_type != "float32" else {}
    return said | kept | {f"option.{key}": value for key, value in enc.options}


def match_fake_quant(op: Op) -> FakeQuant | None:
    """The marker that an op is, or None for any other op."""
    if marker_kind(op) != FAKE_QUANT:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    said = plain(attrs)
    x, *rest = op.operands
    low, high = rest or (None, None)
    block = tuple(int(b) for b in said["block"].split(",") if b)
    options = sorted((k.partition(".")[2], v) for k, v in said.items() if k.startswith("option."))
    kept = said.get("scale_type", "float32"), tuple(options)
    return FakeQuant(
        op, x, low, high, Encoding(said["format"], shape_of(x), block, said["scheme"], *kept)
    )


# The module attribute `jq.encodings`: how each stored weight is encoded.
#
#     module attributes {jq.encodings = {"dense/kernel" = {format = "int8",
#         shape = array<i64: 64, 33>, block = array<i64: 0, 1>, scheme = "symmetric",
#         scale_type = "float32", options = {}, parts = ["codes", "scale"],
#         tensor = "dense/kernel", sha256 = "2c26b46b..."}}}
#
# Written from what the program holds; `sha256` of the parts where the module holds them itself (as
# constants, not as arguments), so that whoever reads it can compare. A tensor keeps its entry
# wherever its parts move: entries are those of the weights as they are stored, the markers say what
# has become of each part.
ATTRIBUTE = "jq.encodings"
DIGEST = "sha256"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Listed:
    """An entry of the attribute: the encoding, and the digest of the data where it has one."""

    encoding: Encoding
    digest: str | None = None


def write_encodings(program: Program, data: Mapping[str, Arrays] | None = None) -> None:
    """Makes the module's attribute say what `program.encodings` says.

    Args:
        data: name -> parts of the tensors that the module itself holds."""
    attributes = program.module.operation.attributes
    with editing():
        entries = {}
        for name, entry in program.encodings.items():
            entries[name] = encoding_attributes(encoding_in(entry), entry["parts"], name)
            if data is not None:
                entries[name][DIGEST] = digest_of(data[name])
        if entries:
            attributes[ATTRIBUTE] = attribute(entries)
        elif ATTRIBUTE in attributes:
            del attributes[ATTRIBUTE]


def digest_of(parts: Arrays) -> str:
    """SHA-256 of names, types, shapes and bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for name, array in parts.items():
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def drop_encodings(program: Program) -> None:
    """Takes the attribute away: no dequantize is left that it could be compared with."""
    attributes = program.module.operation.attributes
    if ATTRIBUTE in attributes:
        with editing():
            del attributes[ATTRIBUTE]


def encoding_in(entry: Mapping[str, Any]) -> Encoding:
    """The encoding that an entry of `Program.encodings` describes."""
    shape, block = tuple(entry["shape"]), tuple(entry["block"])
    options = tuple(sorted(entry["options"].items()))
    return Encoding(entry["format"], shape, block, entry["scheme"], entry["scale_type"], options)


def read_encodings(module: ir.Module) -> dict[str, Listed]:
    """Reads the module's attribute; empty when there is none."""
    attributes = module.operation.attributes
    if ATTRIBUTE not in attributes:
        return {}
    entries = {a.name: ir.DictAttr(a.attr) for a in ir.DictAttr(attributes[ATTRIBUTE])}
    return {
        name: Listed(encoding_of(entry), plain(entry[DIGEST]) if DIGEST in entry else None)
        for name, entry in entries.items()
    }


# A float weight that is held as the parts of a number format.
def store_weight(
    program: Program, name: str, enc: Encoding, arrays: Mapping[str, np.ndarray]
) -> None:
    """Replaces the uses of one float weight by a dequantize of its parts.

    The parts become the weights `name:part`; the float weight itself is left without uses."""
    weight = program.weight(name)
    weight.replace_all_uses_with(store(program, name, enc, arrays, dtype_of(weight)))


def store(
    program: Program, name: str, enc: Encoding, arrays: Mapping[str, np.ndarray], dtype: Any
) -> ir.Value:
    """The float tensor of `dtype` that new weights `name:part` stand for.

    The name gets `#2`, `#3`, ... when another tensor is stored under it."""
    unique = unused(name, lambda name: any(f"{name}:{k}" in program.weights for k in arrays))
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
        **vars(enc),
        "shape": list(enc.shape),
        "block": list(enc.block),
        "options": dict(enc.options),
        "granularity": enc.granularity,
        "parts": describe_parts(arrays),
        "float_dtype": np.dtype(dtype).name,
    }


def describe_parts(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Types and shapes of the parts, for such an entry."""
    return {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in arrays.items()}
