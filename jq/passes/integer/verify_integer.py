"""Proves that no float op lies between codes: nothing is rewritten.

An op offends when it reads or makes floats that come from codes, and codes are computed from it.
In front of the first quantize and after the last dequantize floats are the user's own tensors;
but a float product of an input offends in any place, and so does what the device has declined and
would compute from codes or from a float input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jq.base.errors import UserError
from jq.ir import Op, Program, dtype_of, ir
from jq.ir.build import NAME, string_attr
from jq.ir.decisions import declined
from jq.ir.markers import match
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import rule_of
from jq.ir.values import kind_of, maker
from jq.passes.base import Pass, PassContext
from jq.passes.qdq.carry_codes import BRANCHES, LOOP

CONVERT = "stablehlo.convert"  # between float types: of what the user hands over, or is handed


@dataclass(frozen=True)
class VerifyInteger(Pass):
    name = "verify-integer"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = offenders(program)
        if found:
            name, kind = name_of(found[0]), kind_of(found[0]).removeprefix("stablehlo.")
            reason = next((op.reason for op in cx.plan.ops if op.name == name and op.reason), "")
            said, _ = declined(found[0]) or ("", "")
            why = reason or said or "it has no integer form here"
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise UserError(
                f"{kind} stays float{more}: {why}",
                op=name,
                hint="use pipeline int8-static, or write it with ops that the docs' page on "
                "integer-only programs lists",
            )
        return False


def name_of(op: Op) -> str:
    return string_attr(op, NAME) or kind_of(op)


def offenders(program: Program) -> list[Any]:
    """Every float op between codes, in program order."""
    flow = _Flow(program)
    from_codes = flow.forwards(_codes(program))
    from_inputs = flow.forwards(list(program.body.arguments)[: len(program.inputs)])
    floats = [v for v in list(program.body.arguments)[: len(program.inputs)] if _float(v)]
    on_device = from_codes | flow.forwards(floats)
    to_codes = flow.backwards(v for op in _markers(program) for v in op.operands)

    def offends(op: Op) -> bool:
        rule = rule_of(op)
        product = isinstance(rule, Contraction) and len(rule.roles(op)) > 1
        refused = declined(op) is not None and kind_of(op) != CONVERT
        if refused and any(v in on_device for v in _read(op)):
            return True
        if any(v in to_codes for v in op.operation.results) and any(
            _float(v) and v in from_codes for v in _read(op)
        ):
            return True
        return any(
            _float(v)
            and ((v in from_codes and v in to_codes) or (product and v in from_codes | from_inputs))
            for v in op.operation.results
        )

    return [op for op in flow.ops if match(op) is None and offends(op)]


def _float(value: ir.Value) -> bool:
    return dtype_of(value).kind in "fV"


def _read(op: Op) -> list[ir.Value]:
    """The values that an op computes with; a loop and a branch only hand on."""
    return [] if op.operation.name in (LOOP, *BRANCHES) else list(op.operation.operands)


def _codes(program: Program) -> list[ir.Value]:
    """The results of what makes or reads codes of activations."""
    return [v for op in _markers(program) for v in op.operation.results]


def _markers(program: Program) -> list[Any]:
    """Markers that make or read codes of activations."""
    return [op for op in program.walk() if match(op) and not _of_weights(program, op)]


def _of_weights(program: Program, op: Op) -> bool:
    return all(program.weight_name(v) is not None or _constant(v) for v in op.operation.operands)


def _constant(value: ir.Value) -> bool:
    return maker(value, "stablehlo.constant") is not None


class _Flow:
    """Dependences between values; through loops and branches, but not into reductions."""

    def __init__(self, program: Program) -> None:
        self.ops: list[Any] = []
        self.readers: dict[ir.Value, list[ir.Value]] = {}
        self.sources: dict[ir.Value, list[ir.Value]] = {}
        self._block(program.body)

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            self.ops.append(op)
            results = list(op.operation.results)
            if op.operation.name not in (LOOP, *BRANCHES):
                for v in op.operation.operands:
                    self._depend(results, v)
                continue
            for i, v in enumerate(op.operation.operands if op.operation.name == LOOP else ()):
                self._depend([results[i]], v)
            for region in op.operation.regions:
                self._region(op, region.blocks[0], results)

    def _region(self, op: Op, block: ir.Block, results: list[ir.Value]) -> None:
        self._block(block)
        yielded = list(block.operations[len(block.operations) - 1].operation.operands)
        for i, argument in enumerate(block.arguments):
            self._depend([argument], op.operation.operands[i])
            if len(yielded) == len(results):
                self._depend([argument], yielded[i])
        if len(yielded) == len(results):
            for result, v in zip(results, yielded, strict=True):
                self._depend([result], v)

    def _depend(self, results: list[ir.Value], on: ir.Value) -> None:
        for result in results:
            self.readers.setdefault(on, []).append(result)
            self.sources.setdefault(result, []).append(on)

    def forwards(self, values: Iterable[ir.Value]) -> set[ir.Value]:
        return _closure(values, self.readers)

    def backwards(self, values: Iterable[ir.Value]) -> set[ir.Value]:
        return _closure(values, self.sources)


def _closure(values: Iterable[ir.Value], follow: dict[ir.Value, list[ir.Value]]) -> set[ir.Value]:
    found, todo = set[ir.Value](), list(values)
    while todo:
        v = todo.pop()
        if v not in found:
            found.add(v)
            todo.extend(follow.get(v, ()))
    return found
