"""Large arrays of `dense_resource` attributes.

The bindings write the bytes of such an attribute but do not read them. The StableHLO interpreter
reads them wrongly without a word, and XLA not at all. MLIR's bytecode has them as they are: in a
module with a single resource, they end its resource section. Format:
https://mlir.llvm.org/docs/BytecodeFormat/.
"""

import math

import numpy as np
from jaxlib.mlir import ir

from jq.base.errors import InternalError
from jq.ir.mlir_context import bytecode_of, editing
from jq.ir.types import to_dtype

_RESOURCES = 5  # id of the section


def resource_array(attr: ir.Attribute, kind: ir.RankedTensorType) -> np.ndarray:
    """The data of a `dense_resource` attribute of type `kind`, of whole bytes an element."""
    dtype, count = to_dtype(kind.element_type), math.prod(kind.shape)
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            ir.Operation.create("stablehlo.constant", results=[kind], attributes={"value": attr})
    section = _section(memoryview(bytecode_of(module)), _RESOURCES)
    size = count * dtype.itemsize
    if len(section) < size:
        raise InternalError(f"{kind} has only {len(section)} bytes of data")
    return np.frombuffer(section, dtype, count, len(section) - size).reshape(kind.shape)


def _section(data: memoryview, wanted: int) -> memoryview:
    """The content of one section of a bytecode file."""
    _, at = _varint(data, 4)  # the version, after the magic number
    at += bytes(data[at : at + 256]).index(0) + 1  # the producer's name
    while at < len(data):
        tag = data[at]
        size, at = _varint(data, at + 1)
        if tag & 0x80:
            alignment, at = _varint(data, at)
            at += -at % alignment
        if tag & 0x7F == wanted:
            return data[at : at + size]
        at += size
    raise InternalError(f"the bytecode has no section {wanted}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and the position after it: the zeros below the lowest set bit of the first
    byte count the bytes that follow."""
    first = data[at]
    extra = 8 if first == 0 else (first & -first).bit_length() - 1
    if extra == 8:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    raw = int.from_bytes(data[at : at + extra + 1], "little")
    return raw >> (extra + 1), at + extra + 1
