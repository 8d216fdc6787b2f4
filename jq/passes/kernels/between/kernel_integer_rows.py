"""Integer arithmetic between codes is computed by kernels over rows.

    %y = convert (minimum (maximum (shift_right_arithmetic (multiply ...))))  : i8 or i16
    ->
    call @jq_row_program(%x, %numbers)

Fires on everything between codes that is elementwise, looked up in a table, or summed or maximized
along the last axis: rescales, sums of tensors, softmax, normalizations. What a region reads besides
(what other kernels, transposes or IREE make) are its operands. Numbers that differ from layer
to layer are one operand, so that layers share a kernel.
"""

import numpy as np

from jq.ir import NAME, Program, at, dtype_of, ir, shape_of, string_attr, users
from jq.ir.arrays import OPS as PROGRAM
from jq.ir.values import short_kind
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, isa_of
from jq.passes.kernels.between._ops import as_integer, fuses
from jq.passes.kernels.between._region import Region

CODES = (np.int8, np.int16)


class KernelIntegerRows(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        roots = _roots(program) if isa else {}
        for i, root in enumerate(roots):
            if isa is None or (region := Region.of(root, roots)) is None:
                continue
            kernel, operands = region.kernel(isa)
            with at(root.owner):
                name = string_attr(root.owner, NAME) or f"integer/{i}"
                given = [as_integer(v) for v in operands] + region.constants()
                (made,) = call_kernel(program, kernel, given, name)
                root.replace_all_uses_with(PROGRAM.reshape(made, shape_of(root)))
            changed = True
        program.drop_dead()
        return changed


def _roots(program: Program) -> dict[ir.Value, None]:
    """Codes that are stored: what reads them is no region, or belongs to several."""
    regions: dict[ir.Value, set[ir.Value | None]] = {}  # that read a value; None: something else
    roots = []
    for op in reversed(list(program.walk())):
        if not fuses(op):
            continue
        value, readers = op.results[0], set[ir.Value | None]()
        for reader in users(value):
            single = len(reader.results) == 1
            readers |= regions.get(reader.results[0], {None}) if single else {None}
        made = short_kind(op) not in ("constant", "reshape", "broadcast_in_dim")
        if made and dtype_of(value) in CODES and (len(readers) != 1 or None in readers):
            roots.append(value)
            readers = {value}
        regions[value] = readers
    return dict.fromkeys(reversed(roots))
