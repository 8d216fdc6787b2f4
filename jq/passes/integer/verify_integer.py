"""Proves that no float op lies between codes: nothing is rewritten.

An op offends when it reads or makes floats that come from codes, and codes are computed from it. In
front of the first quantize and after the last dequantize floats are the user's own tensors; but a
float product of an input offends in any place, and so does what the device has declined and would
compute from codes or from a float input."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from jq.base.errors import UserError
from jq.base.from_jax import scope
from jq.ir import NAME, Op, Program, dtype_of, ir, kind_of, maker, string_attr
from jq.ir.decisions import declined, function_of
from jq.ir.markers import match
from jq.ir.ops import Contraction, rule_of
from jq.ir.ops.selection import SCATTER, combines
from jq.ir.values import CONTROL, handed_on, reached
from jq.passes.base import Pass, PassContext
from jq.planning.decisions import QuantPlan

FORMS_HELP = "write it with ops that the docs' page on integer-only programs lists"
INTEGER_HELP = "change the model there, or cut it: compute this outside of the device"
HELPS = {SCATTER: "x.at[i].set(y) has one: x.at[i].add(y) is x + jnp.zeros_like(x).at[i].set(y)"}
HELPS |= {"stablehlo.compare": "choose with maximum and minimum, or by a function of one tensor"}
CONVERT = "stablehlo.convert"  # between float types: of what the user hands over, or is handed


class VerifyInteger(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        if found := causes(program, cx.plan):
            first, *others = found
            more = f" (and {len(others)} more, which `jaxq check` lists)" if others else ""
            other = f"use pipeline int8-static, or {FORMS_HELP}"
            help = first.help or (INTEGER_HELP if cx.target.device.integer_only else other)
            raise UserError(first.reason + more, op=first.name, hint=help)
        return False


@dataclass(frozen=True)
class Cause:
    """An op of the model without a form in integers, not float because of another such op.

    `function`: softmax, a normalization or attention, where it is a part of one."""

    op: Any
    name: str
    reason: str
    help: str
    function: str = ""


def causes(program: Program, plan: QuantPlan) -> list[Cause]:
    """Float ops between codes, by names and reasons of what was written; whole functions, then
    what a limit of the device leaves float, first."""
    left = offenders(program)
    planned = {p.name: p for p in plan.ops if p.decision != "integer" and p.reason}
    found = dict[str, Cause]()
    for op in left:
        name = name_of(op)
        one: Cause | None = None
        if (part := function_of(op)) is not None:
            one = Cause(op, part.name, part.reason, part.help, part.function)
        elif (declines := planned.get(name)) is not None:
            one = Cause(op, name, declines.cause, declines.help)
        elif (said := declined(op)) is not None:
            one = Cause(op, name, *said)
        elif isinstance(rule_of(op), Contraction):
            pass  # float because of what it reads, or of what reads it
        elif string_attr(op, NAME) and not _follows(op, left):  # no product of a rewrite
            said = f"{words(op)} has no integer form here", HELPS.get(kind_of(op), "")
            one = Cause(op, name, *said)
        if one is not None and (name == one.name or f"{one.name} {one.function}" not in found):
            found[f"{one.name} {one.function}"] = one
    if left and not found:
        op = left[0]
        found[""] = Cause(op, name_of(op), f"{words(op)} has no integer form here", "")
    return sorted(found.values(), key=lambda cause: (not cause.function, not cause.help))


def _follows(op: Op, left: list[Any]) -> bool:
    """True where it is float because of another one: of what it reads, or chooses for."""
    ops = {other.operation for other in left}
    if any(made and made.operation in ops for made in map(maker, op.operands)):
        return True
    readers = [use.owner for v in op.results for use in v.uses]
    return kind_of(op) == "stablehlo.compare" and any(declined(reader) for reader in readers)


_REDUCED = {"multiply": "prod", "and": "all", "or": "any", "add": "sum"}


def words(op: Op) -> str:
    """The name of an op for those who write models."""
    kind = kind_of(op).rpartition(".")[2]
    if kind != "reduce":
        return kind
    how = combines(op)
    return f"reduce ({_REDUCED.get(how, how) if how else 'argmax, argmin, or a function of yours'})"


def name_of(op: Op) -> str:
    """The op's name; of what a rewrite made, that of the op that it stands for."""
    return string_attr(op, NAME) or scope(op.location) or kind_of(op)


def offenders(program: Program) -> list[Any]:
    """Every float op between codes, in program order."""
    flow = _Flow(program)
    from_codes = flow.forwards([v for op in _markers(program) for v in op.results])
    inputs = list(program.body.arguments)[: len(program.inputs)]
    from_inputs = flow.forwards(inputs)
    on_device = from_codes | flow.forwards(filter(_float, inputs))
    to_codes = flow.backwards(v for op in _markers(program) for v in op.operands)
    between, fed = from_codes & to_codes, from_codes | from_inputs

    def offends(op: Op) -> bool:
        rule = rule_of(op)
        multiplies = isinstance(rule, Contraction) and len(rule.roles(op)) > 1
        refused = declined(op) is not None and kind_of(op) != CONVERT
        if refused and any(v in on_device for v in _read(op)):
            return True
        floats_read = any(_float(v) and v in from_codes for v in _read(op))
        if floats_read and any(v in to_codes for v in op.results):
            return True
        return any(_float(v) and v in (fed if multiplies else between) for v in op.results)

    return [op for op in flow.ops if match(op) is None and offends(op)]


def _float(value: ir.Value) -> bool:
    return dtype_of(value).kind in "fV"


def _read(op: Op) -> list[ir.Value]:
    """The values that an op computes with; a loop and a branch only hand on."""
    return [] if op.operation.name in CONTROL else list(op.operands)


def _markers(program: Program) -> list[Any]:
    """Markers that make or read codes of activations."""

    def known(v: ir.Value) -> bool:
        return program.weight_name(v) is not None or maker(v, "stablehlo.constant") is not None

    return [op for op in program.walk() if match(op) and not all(map(known, op.operands))]


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
            nested = op.operation.name in CONTROL
            plain = product(op.results, op.operands)
            for result, on in handed_on(op) if nested else plain:
                self.readers.setdefault(on, []).append(result)
                self.sources.setdefault(result, []).append(on)
            for region in op.regions if nested else ():
                self._block(region.blocks[0])

    def forwards(self, values: Iterable[ir.Value]) -> set[ir.Value]:
        return set(reached(values, lambda v: self.readers.get(v, ())))

    def backwards(self, values: Iterable[ir.Value]) -> set[ir.Value]:
        return set(reached(values, lambda v: self.sources.get(v, ())))
