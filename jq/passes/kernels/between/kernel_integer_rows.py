"""Integer arithmetic between codes is computed by kernels over rows.

    %y = convert (minimum (maximum (shift_right_arithmetic (multiply ...))))  : i8 or i16
    ->
    call @jq_row_program(%x, %numbers)

Fires on everything between codes that is elementwise, looked up in a table, or summed or maximized
along the last axis: rescales, sums of tensors, softmax, normalizations. What a region reads besides
(what other kernels, transposes or IREE make) are its operands. Numbers that differ from layer to
layer are one operand, so that layers share a kernel."""

from collections.abc import Sequence

import numpy as np

from jq.ir import NAME, Program, at, dtype_of, ir, shape_of, short_kind, string_attr, users
from jq.ir.arrays import OPS as PROGRAM
from jq.kernels.rowwise.row_program import CHEAP
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, isa_of
from jq.passes.kernels.between._ops import as_integer, fuses
from jq.passes.kernels.between._region import Region

CODES = (np.int8, np.int16)
Readers = dict[ir.Value, set[ir.Value | None]]


class KernelIntegerRows(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = isa_of(cx.target)
        groups, stored = _groups(program) if isa else [], dict[ir.Value, ir.Value]()
        for i, group in enumerate(groups):
            first, *others = group
            region = group[first]
            for root in others:
                region.also(root)
            kernel, operands = region.kernel(isa or "")
            with at(first.owner):
                name = string_attr(first.owner, NAME) or f"integer/{i}"
                given = [as_integer(stored.get(v, v)) for v in operands] + region.constants()
                made = call_kernel(program, kernel, given, name)
                for root, value in zip(group, made, strict=True):
                    stored[root] = PROGRAM.reshape(value, shape_of(root))
                    root.replace_all_uses_with(stored[root])
        return program.tidied(bool(groups))


def _groups(program: Program) -> list[dict[ir.Value, Region]]:
    """The roots that one kernel computes each, and their regions."""
    readers = _readers(program, ())
    roots = dict.fromkeys(value for value in readers if value in readers[value])

    def read(value: ir.Value | None) -> set[ir.Value]:
        region = None if value is None else Region.of(value, roots)
        return set(region.operands) if region else set()

    # Codes of all that their region reads are no sum within it.
    cut = [v for v in _shared(readers) if any(read(v) != read(root) for root in readers[v])]
    groups = _together(_readers(program, cut))
    alone = {next(iter(group)) for group in groups if len(group) == 1}
    if alone.isdisjoint(cut):
        return groups
    return _together(_readers(program, [value for value in cut if value not in alone]))


def _together(readers: Readers) -> list[dict[ir.Value, Region]]:
    """Elementwise codes of the same operands are computed by one kernel."""
    roots = dict.fromkeys(value for value in reversed(readers) if value in readers[value])
    groups: dict[object, dict[ir.Value, Region]] = {}
    for root in roots:
        if (region := Region.of(root, roots)) is not None:
            block = hash(root.owner.operation.block)
            key = (block, region.shape, frozenset(region.operands)) if region.alone else root
            groups.setdefault(key, {})[root] = region
    return list(groups.values())


def _readers(program: Program, cut: Sequence[ir.Value]) -> Readers:
    """The roots of the regions that read each value, readers first; None stands for anything else.
    Roots are codes that are stored, and read themselves: others than one region read them, or they
    are `cut`."""
    readers: Readers = {}
    for op in reversed(list(program.walk())):
        if not fuses(op):
            continue
        value, found = op.results[0], set[ir.Value | None]()
        for reader in users(value):
            single = len(reader.results) == 1
            found |= readers.get(reader.results[0], {None}) if single else {None}
        root = _made(value) and (len(found) != 1 or None in found or value in cut)
        readers[value] = {value} if root else found
    return readers


def _made(value: ir.Value) -> bool:
    """Codes that are computed, not moved."""
    kind = short_kind(value.owner)
    return dtype_of(value) in CODES and kind not in ("constant", "reshape", "broadcast_in_dim")


def _shared(readers: Readers) -> list[ir.Value]:
    """Codes within a region whose computation another region repeats."""

    def needed(value: ir.Value) -> set[ir.Value]:
        """Values of the region that depend on what it reads, up to this one."""
        if value not in known:
            inner = [v for v in value.owner.operands if v not in readers.get(v, {v})]
            outer = len(inner) < len(value.owner.operands)
            found = set[ir.Value]().union(*map(needed, inner))
            known[value] = found | {value} if found or outer else found
        return known[value]

    known: dict[ir.Value, set[ir.Value]] = {}
    return [
        value
        for value, roots in readers.items()
        if value not in roots and _made(value)
        if any(len(readers[v]) > 1 and len(needed(v)) > CHEAP for v in needed(value))
    ]
