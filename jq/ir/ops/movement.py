"""Shared by the ops that only move elements: applying a move to the parts of a tensor.

Every format keeps the leading axes of the tensor as leading axes of each part, as far as
every index has its own scale there (`leading`). Formats whose codes are stored one to an
element keep all axes, and scales keep the rank, so any move goes part by part.
"""

from jq.formats import get_format
from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.markers import Marker, dequantize

WHOLE = "tensor_scale"  # a part that is one number for the whole tensor, however it is cut


def leading(marker: Marker) -> int:
    """Number of leading axes that are the same in the tensor and in all of its parts."""
    count = 0
    for axis, (size, block) in enumerate(
        zip(marker.encoding.shape, marker.encoding.block, strict=True)
    ):
        last = axis == len(marker.encoding.shape) - 1
        if (
            block != 1
            or (last and _packed(marker))
            or any(
                len(shape_of(p)) <= axis or shape_of(p)[axis] != size
                for name, p in marker.parts.items()
                if name != WHOLE
            )
        ):
            break
        count += 1
    return count


def plain(marker: Marker) -> bool:
    """True if codes are stored one to an element, in the logical shape."""
    codes = marker.parts.get("codes")
    if codes is None or _packed(marker):
        return False
    return shape_of(codes) == marker.encoding.shape


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
    dtype = dtype_of(marker.op.results[0])
    return dequantize(program, enc, parts, dtype, tensor=marker.tensor)
