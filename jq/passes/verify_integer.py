"""Proves that no float op lies between codes: nothing is rewritten.

An op offends when it computes floats from codes and codes are computed from it. In front of
the first quantize and behind the last dequantize floats are the user's own tensors; but a float
product of an input offends in any place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jq.errors import UserError
from jq.ir import Program, dtype_of, ir, walk
from jq.ir.build import NAME, string_attr
from jq.ir.cone import kind_of
from jq.ir.markers import QUANTIZE, QUANTIZE_DYNAMIC, match
from jq.ops.base import Contraction, rule_of
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class VerifyInteger(Pass):
    name = "verify-integer"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = offenders(program)
        if found:
            name, kind = found[0]
            reason = next((op.reason for op in cx.plan.ops if op.name == name and op.reason), "")
            why = reason or "it has no integer form here"
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise UserError(
                f"{kind} stays float{more}: {why}",
                op=name,
                hint="use pipeline int8-static, or write it with ops that docs/integer-only.md has",
            )
        return False


def offenders(program: Program) -> list[tuple[str, str]]:
    """Name and kind of every float op between codes, in program order."""
    after, behind_inputs = _from_codes(program), _behind(program, _float_inputs(program))
    needed = _to_codes(program)

    def offends(op: Any) -> bool:
        rule = rule_of(op)
        product = isinstance(rule, Contraction) and len(rule.roles(op)) > 1
        return (op.operation in after and op.operation in needed) or (
            product and op.operation in after | behind_inputs
        )

    return [
        (string_attr(op, NAME) or kind_of(op), kind_of(op).removeprefix("stablehlo."))
        for op in program.body.operations
        if _computes_floats(op) and match(op) is None and offends(op)
    ]


def _from_codes(program: Program) -> set[Any]:
    """Ops that depend on the codes of an activation."""
    markers = [op for op in program.body.operations if match(op)]
    return _behind(program, {op.operation for op in markers if not _of_weights(program, op)})


def _float_inputs(program: Program) -> set[Any]:
    """The first readers of the inputs that are float."""
    given = list(program.body.arguments)[: len(program.inputs)]
    return {use.owner.operation for v in given if dtype_of(v).kind in "fV" for use in v.uses}


def _behind(program: Program, first: set[Any]) -> set[Any]:
    """These ops and all that depend on them."""
    found = set(first)
    for op in program.body.operations:
        if any(_owner(v) in found for v in _operands(op)):
            found.add(op.operation)
    return found


def _of_weights(program: Program, op: Any) -> bool:
    return all(program.weight_name(v) is not None or _constant(v) for v in op.operation.operands)


def _constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and kind_of(value.owner) == "stablehlo.constant"


def _to_codes(program: Program) -> set[Any]:
    """Ops whose results a quantize is computed from."""
    found: set[Any] = set()
    for op in reversed(list(program.body.operations)):
        if match(op, QUANTIZE, QUANTIZE_DYNAMIC) or op.operation in found:
            found |= {owner for v in _operands(op) if (owner := _owner(v)) is not None}
    return found


def _operands(op: Any) -> list[ir.Value]:
    """Operands of an op and of everything in its regions."""
    inner = [o for region in op.regions for block in region.blocks for o in walk(block)]
    return [v for o in (op, *inner) for v in o.operation.operands]


def _owner(value: ir.Value) -> Any:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _computes_floats(op: Any) -> bool:
    return any(dtype_of(v).kind in "fV" for v in op.operation.results)
