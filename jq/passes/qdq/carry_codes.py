"""Keeps codes in what a loop carries, or a branch gives, where it is quantized on every way.

    while(%x = dequantize %q) { ...; return dequantize %r }
    ->
    while(%x = %q) { dequantize %x; ...; return %r }

Fires where all of them have one scale and zero point, known now: the plan gives edges that a loop
or a branch hands on the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jq.formats import Encoding
from jq.ir import Op, Program, at, dtype_of, editing, ir, last_of, shape_of, tensor_type
from jq.ir.hoist import rebuilt
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.ir.values import CONTROL, LOOP, handed_on
from jq.passes.base import Pass, PassContext
from jq.passes.integer._values import parameters, static_parameters


@dataclass(frozen=True)
class Carried:
    """The encoding that every way to one result has."""

    encoding: Encoding
    scale: float
    zero_point: int
    dtype: Any  # of the codes

    def floats(self, program: Program, codes: ir.Value, like: Any, name: str) -> ir.Value:
        """The dequantize of `codes`, at the current insertion point."""
        given = static_parameters(self.encoding, self.scale, self.zero_point)
        return dequantize(program, self.encoding, {"codes": codes, **given}, like, tensor=name)


class CarryCodes(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in reversed(list(program.walk())):  # inner ones first
            if op.operation.name not in CONTROL:
                continue
            held = {i: c for i in range(len(op.results)) if (c := _codes(program, op, i))}
            if held:
                _rebuild(program, op, held)
                changed = True
        return changed


def _codes(program: Program, op: Op, index: int) -> Carried | None:
    carried = []
    for value in (source for target, source in handed_on(op) if target == op.results[index]):
        marker = match(value, DEQUANTIZE)
        known = parameters(program, marker) if marker and not any(marker.encoding.block) else None
        if marker is None or known is None:
            return None
        codes = marker.parts["codes"]
        if shape_of(codes) != marker.encoding.shape:
            return None
        carried.append(Carried(marker.encoding, *known, dtype_of(codes)))
    return carried[0] if all(c == carried[0] for c in carried) else None


def _rebuild(program: Program, op: Op, held: dict[int, Carried]) -> None:
    old, loop = op.operation, op.operation.name == LOOP
    operands = list(old.operands)
    types = [r.type for r in old.results]
    with editing():
        for i, c in held.items():
            types[i] = tensor_type(c.encoding.shape, c.dtype)
    if loop:
        operands = _as_codes(operands, held)
    new = rebuilt(old, operands, types)
    for region in new.regions:
        block = region.blocks[0]
        last = last_of(block)
        if last.operands and len(last.operands) == len(types):
            for i, v in enumerate(_as_codes(list(last.operands), held)):
                last.operands[i] = v
        if loop:
            for i, c in held.items():  # arguments become codes; who reads them, a dequantize
                argument, dtype = block.arguments[i], dtype_of(block.arguments[i])
                with editing():
                    argument.set_type(tensor_type(c.encoding.shape, c.dtype))
                with at(block.operations[0]):
                    floats = c.floats(program, argument, dtype, "carried")
                argument.replace_all_uses_except(floats, floats.owner.operation)
    for i, value in enumerate(old.results):
        result = new.results[i]
        if i in held:
            with at(new, after=True):
                result = held[i].floats(program, result, dtype_of(value), "carried")
        value.replace_all_uses_with(result)
    old.erase()


def _as_codes(values: Sequence[ir.Value], held: dict[int, Carried]) -> list[ir.Value]:
    codes = list(values)
    for i in held:
        marker = match(codes[i], DEQUANTIZE)
        assert marker is not None
        codes[i] = marker.parts["codes"]
    return codes
