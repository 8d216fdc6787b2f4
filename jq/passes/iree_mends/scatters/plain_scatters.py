"""Scatters become those of rows that exist, and write to no memory but their operand's.

    scatter %x : [B, T, H, D], %i, %u : [B, 1, H, D]           // one window at a position of T
    ->
    scatter (reshape %x : [B * T, H * D]), %rows : [B, 1], (reshape %u : [B, H * D])

The leading axes, along which windows lie, become one axis of rows; a window of several rows
becomes several updates. XLA drops a window that is not whole. What is known of the indices
(`jq.ir.index_range`) often proves that all are; else, of windows that are outside,

- sums, products and extremes get updates that change nothing;
- for any other update the operand gets one more row, where they go, which is cut off again.

One window alone is read, changed and written back as a slice. A scatter of several operands at a
time, or of a function that is more than arithmetic, takes one window after the other in a loop."""

from jq.base.errors import UserError
from jq.ir import NAME, Op, dtype_of, ir, shape_of, string_attr
from jq.ir.index_range import Element, index_range
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.scatters import _scatter
from jq.passes.iree_mends.scatters._scatter import body_of, is_arithmetic, or_bools
from jq.passes.iree_mends.scatters._window import one_by_one, scatter_rows, write_window


class PlainScatters(Mend):
    """Indices of a scatter are not checked: memory out of bounds is written.
    No trap: the write may hit anything: no test can look for it

    Scatters with batches, with windows of several rows or of several operands become ops that
    IREE's own rules refuse.
    Trap: traps/test_refused.py::test_scatters_with_batches
    Report: iree-org/iree#24719

    A scatter that adds booleans adds them modulo 2.
    Trap: traps/test_refused.py::test_sums_of_booleans

    In a scatter's function, what IREE spells out in several ops (tangents, roundings) is refused.
    Trap: traps/test_refused.py::test_roundings_in_a_scatter

    A dynamic slice of a tensor without axes crashes the compiler.
    Trap: traps/test_refused.py::test_a_slice_of_a_number"""

    def finds(self, op: Op) -> bool:
        """True if `op` is a scatter, but not of whole rows of a matrix that are proven to exist."""
        if op.operation.name != "stablehlo.scatter":
            return False
        d, (operands, indices, _) = _scatter.numbers(op), _scatter.parts(op)
        whole = shape_of(operands[0])
        plain = (
            len(operands) == 1
            and len(whole) == 2
            and list(d.update_window_dims) == [1]
            and list(d.scattered_dims_to_operand_dims) == list(d.inserted_window_dims) == [0]
            and not list(d.input_batching_dims)
            and len(shape_of(indices)) == 2
            and d.index_vector_dim == 1
            and shape_of(op.operands[2])[1] == whole[1]
        )
        low, high = index_range(indices, Element(1, 0)) if plain else (0, 0)
        return not plain or low < 0 or high >= whole[0] or not is_arithmetic(op)

    def rewritten(self, op: Op) -> list[ir.Value]:
        operands, _, updates = _scatter.parts(op)
        _check_types(op, operands)
        if 0 in shape_of(operands[0]) or 0 in shape_of(updates[0]):
            return operands
        or_bools(op)
        s = _scatter.read(op)
        if s.count == 1:
            return write_window(op, s, operands)
        if len(operands) == 1 and is_arithmetic(op):
            return [scatter_rows(op, s, operands[0])]
        return one_by_one(op, s, operands)


def _check_types(op: Op, operands: list[ir.Value]) -> None:
    inside = [dtype_of(v) for v in body_of(op).arguments]
    if inside != [dtype_of(v) for v in operands] * 2:
        what = "a scatter that computes in another type than that of its operand"
        hint = "convert the operand and the updates before it"
        raise UserError(what, op=string_attr(op, NAME) or op.operation.name, hint=hint)
