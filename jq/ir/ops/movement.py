"""Shared by the ops that only move elements: moves of the parts of a tensor, and orders of axes.

Every format keeps the leading axes of the tensor as leading axes of each part, as far as every
index has its own scale there (`leading`). Formats whose codes are stored one to an element keep all
axes, and scales keep the rank, so any move goes part by part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.formats import get_format
from jq.ir import Op, Program, dtype_of, ir, shape_of
from jq.ir.build import attributes_of, i64_array, integers
from jq.ir.markers import Marker, dequantize

WHOLE = "tensor_scale"  # a part that is one number for the whole tensor, however it is cut


def leading(marker: Marker) -> int:
    """Number of leading axes that are the same in the tensor and in all of its parts."""
    enc, parts = marker.encoding, [shape_of(p) for k, p in marker.parts.items() if k != WHOLE]
    for axis, size in enumerate(enc.shape):
        packed = axis == len(enc.shape) - 1 and _packed(marker)
        kept = all(part[axis : axis + 1] == (size,) for part in parts)
        if enc.block[axis] != 1 or packed or not kept:
            return axis
    return len(enc.shape)


def plain(marker: Marker) -> bool:
    """True if codes are stored one to an element, in the logical shape."""
    codes = marker.parts.get("codes")
    return codes is not None and not _packed(marker) and shape_of(codes) == marker.encoding.shape


def _packed(marker: Marker) -> bool:
    """True if the last axis is stored several codes to a byte: one byte where it has one index."""
    return get_format(marker.encoding.format).stored_bits(marker.encoding) < 8


def rebuilt(
    program: Program,
    marker: Marker,
    shape: tuple[int, ...],
    block: tuple[int, ...],
    parts: dict[str, ir.Value],
) -> ir.Value:
    """The dequantize of moved parts, in the type that the old one had."""
    enc = marker.encoding.with_shape(shape, block)
    return dequantize(program, enc, parts, dtype_of(marker.op.results[0]), tensor=marker.tensor)


def of_codes(program: Program, marker: Marker, codes: ir.Value) -> ir.Value:
    """The dequantize of other codes with the same parameters; block sums are of the old ones."""
    parts = {k: v for k, v in marker.parts.items() if k != "sum"} | {"codes": codes}
    return rebuilt(program, marker, shape_of(codes), marker.encoding.block, parts)


# In which order of axes an op can compute, so that transposes move through it.
#
#     add (transpose %x), (transpose %y)   ->  transpose (add %x, %y)
#     reduce (transpose %x) over [2, 3]    ->  reduce %x over [1, 2]
#
# An *order* says how a value is stored: axis `i` of what is stored is axis `order[i]` of the value,
# as in `transpose`. Most ops compute in any order of axes, once their attributes are in it; others
# have a result in another order than their operand, as reductions; what says nothing, stays.
Order = tuple[int, ...]
RESULT = -1


@dataclass(frozen=True)
class Orders:
    """The orders that an op can compute in together.

    Attributes:
        operands, results: one order each; None for what stays as it is.
        attributes: those that differ.
        places: the operand that stands at each place; empty where all stay."""

    operands: tuple[Order | None, ...]
    results: tuple[Order | None, ...]
    attributes: Mapping[str, ir.Attribute] = field(default_factory=dict)
    places: tuple[int, ...] = ()


def inverse(order: Sequence[int]) -> Order:
    return tuple(int(i) for i in np.argsort(order))


def permuted(values: Sequence[Any], order: Sequence[int]) -> list[Any]:
    """Entries of axes, in the order that the axes are stored in."""
    return [values[a] for a in order]


def significant(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """The order without axes of size 1, which may stand anywhere."""
    return [a for a in order if shape[a] != 1]


def is_moved(shape: Sequence[int], order: Sequence[int]) -> bool:
    """True if a value of this shape is stored otherwise in this order."""
    kept = significant(shape, order)
    return kept != sorted(kept) and 0 not in shape


def every_axis(
    op: Op, order: Order, along: Sequence[str] = (), naming: Sequence[str] = ()
) -> Orders | None:
    """The orders of an op whose operands and results have the same axes, or none.

    Args:
        op: the op.
        order: that of all its values.
        along: attributes with an entry for each axis.
        naming: attributes that name axes."""
    operands, results = list(op.operands), list(op.results)
    ranks = {len(shape_of(v)) for v in (*operands, *results)} - {0}
    if ranks != {len(order)} or any(not shape_of(v) for v in results):
        return None
    there, back = attributes_of(op), inverse(order)
    ordered: dict[str, ir.Attribute] = {}
    for key in (k for k in along if k in there):
        if isinstance(there[key], ir.DenseI64ArrayAttr):
            ordered[key] = i64_array(permuted(integers(op, key), order))
        else:  # pairs
            pairs = np.array(there[key]).reshape(len(order), 2)
            ordered[key] = ir.DenseElementsAttr.get(np.ascontiguousarray(pairs[list(order)]))
    for key in (k for k in naming if k in there):
        if isinstance(there[key], ir.DenseI64ArrayAttr):
            ordered[key] = i64_array([back[a] for a in integers(op, key)])
        else:
            axis = ir.IntegerAttr(there[key])
            ordered[key] = ir.IntegerAttr.get(axis.type, back[axis.value])
    same = tuple(order if shape_of(v) else None for v in operands)
    return Orders(same, (order,) * len(results), ordered)


def with_starts(found: Orders | None, order: Order, first: int) -> Orders | None:
    """The orders of an op whose operands from `first` on (0: none) are where each axis starts."""
    if found is None or not first:
        return found
    return replace(found, places=(*range(first), *(first + a for a in order)))
