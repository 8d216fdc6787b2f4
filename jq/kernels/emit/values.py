"""Values of a kernel body: vectors, and indices that know how large they can be."""

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Position:
    """A computed index, never below 0, and its largest value. Ranges of workgroup ids and loop
    indices are known and kept by arithmetic: loads and stores are proven in bounds."""

    value: ir.Value
    high: int


Index = Position | int
Indices = Sequence[Index]
Values = Sequence[ir.Value]


def high(index: Index) -> int:
    """The largest value of an index."""
    return index if isinstance(index, int) else index.high


def element(name: str) -> ir.Type:
    return ir.Type.parse(name)


def vec(lanes: int, name: str) -> ir.VectorType:
    """`vector<lanes x name>`."""
    return ir.VectorType.get([lanes], element(name))


def lanes_of(value: ir.Value) -> int:
    return int(ir.VectorType(value.type).shape[0])


def is_float(value: ir.Value) -> bool:
    kind = value.type
    scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
    return isinstance(scalar, ir.FloatType)


def attribute(kind: ir.Type, value: float) -> ir.Attribute:
    """A number of a scalar type."""
    floats = isinstance(kind, ir.FloatType)
    return ir.FloatAttr.get(kind, float(value)) if floats else ir.IntegerAttr.get(kind, int(value))


def minor_identity(rank: int) -> ir.AffineMapAttr:
    """The map of a transfer along the last of `rank` axes."""
    return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(rank - 1)]))


def mlir_type(kind: TensorType) -> ir.RankedTensorType:
    """A tensor's type in the current context."""
    return ir.RankedTensorType(ir.Type.parse(str(kind)))
