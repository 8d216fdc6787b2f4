"""Rows of a table, by their numbers.

    gather(dequantize(codes, scale), rows) -> dequantize(gather(codes, rows), gather(scale, rows))

One scale a row, and only the rows that are read are dequantized."""

from collections.abc import Sequence

from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of, stablehlo
from jq.ir.build import i64_array, integers, like
from jq.ir.markers import Marker
from jq.ir.ops.base import Contraction, Role
from jq.ir.ops.movement import leading, plain, rebuilt
from jq.ir.ops.rules.selecting import Selecting


def row_numbers(lead: int, rank: int, vectors: int) -> ir.Attribute:
    """Those of a gather of rows [lead axes of the index, rank axes of a row]."""
    offset = [lead + i for i in range(rank)]
    return stablehlo.GatherDimensionNumbers.get(offset, [0], [], [], [0], vectors)


class Gather(Selecting, Contraction):
    """Lookup in an embedding table that stays quantized."""

    op, typed = "gather", (0,)

    def roles(self, op: Op) -> tuple[Role, ...]:
        d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        rank = len(shape_of(op.operands[0]))
        read = frozenset(range(rank)) - set(d.start_index_map) - set(d.operand_batching_dims)
        return (Role(0, read, max(read, default=None)),)

    def terms(self, op: Op) -> int:
        return 1

    def decline(self, op: Op) -> str | None:
        d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        table, sizes = shape_of(op.operands[0]), integers(op, "slice_sizes")
        whole = all(n == s for a, (n, s) in enumerate(zip(table, sizes, strict=True)) if a)
        if list(d.start_index_map) != [0] or list(d.collapsed_slice_dims) != [0] or not whole:
            return "only a lookup of whole rows is quantized"
        return "a batched lookup is not quantized" if list(d.operand_batching_dims) else None

    def lower(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        marker, result = markers[0], shape_of(op.results[0])
        d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        lead = len(result) - len(d.offset_dims)  # axes that come from the indices
        if marker is None or self.decline(op) or list(d.offset_dims) != [*range(lead, len(result))]:
            return None
        enc = marker.encoding
        per_row = leading(marker) >= 1
        if not per_row and not (plain(marker) and enc.block[0] == 0):
            return None

        def rows(part: ir.Value) -> ir.Value:
            first, *row = shape_of(part)
            if first != enc.shape[0]:  # one scale for all rows
                return OPS.reshape(part, [1] * lead + row)
            dims = row_numbers(lead, len(row), d.index_vector_dim)
            says = {"dimension_numbers": dims, "slice_sizes": i64_array([1, *row])}
            return like(op, [part, op.operands[1]], [*result[:lead], *row], dtype_of(part), **says)

        parts = {k: rows(v) for k, v in marker.parts.items()}
        block = (1 if per_row else 0,) * lead + enc.block[1:]
        return rebuilt(program, marker, result, block, parts)
