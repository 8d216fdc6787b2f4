"""Decisions of passes about named ops, kept in the program for later passes and reports.

    func.func public @main(...) attributes {jq.decisions = {
        "encoder/q" = {kernel = "gemm_8x64x192_1f0c3a55", merged = ["encoder/k", "encoder/v"]},
        "head" = {no_kernel = "one operand is float"}}}

On `@main` and not on the ops: a kernel takes the place of several ops, and of markers around them.

What the device of a target cannot compute on codes is said on the op, and whatever would compute it
on codes leaves it in float:

    %r = stablehlo.reverse %x, dims = [1] {jq.declined = {reason = "...", help = "..."}}

Ops of one function (softmax, a normalization, attention) that the device cannot compute also have
`jq.part_of = {function = ..., name = ..., reason = ..., help = ...}`: it is refused once.

A function that the device has may still compute such an op, with others; not so where `by_shape`
is there as well: no op of that shape is computed on codes, in whatever form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.build import attribute, plain, string_attr
from jq.ir.mlir_context import editing
from jq.ir.program import Program
from jq.ir.values import Op, maker
from jq.target.device_table import Device

DECISIONS, DECLINED, PART_OF = "jq.decisions", "jq.declined", "jq.part_of"
ROUNDED = "jq.rounded"  # an operator of a TFLite file, whose kernels have their own arithmetic
SMOOTHING = "smoothing"  # what `smooth` divides a tensor's channels by, as powers of two
Fact = str | Sequence[str] | np.ndarray  # a text, texts, or whole numbers
Facts = Mapping[str, Fact]


def decisions(program: Program) -> dict[str, dict[str, Any]]:
    """The decisions by the op's name: texts, tuples of texts, and arrays of whole numbers."""
    attributes = program.main.attributes
    return plain(attributes[DECISIONS]) if DECISIONS in attributes else {}


def decide(program: Program, found: Mapping[str, Facts]) -> None:
    """Adds facts about ops to those that are known; a newer one takes the place of an older."""
    known = decisions(program)
    for op, facts in found.items():
        known[op] = known.get(op, {}) | dict(facts)
    if not known:
        return
    with editing():
        program.main.attributes[DECISIONS] = attribute(
            {op: {key: _kept(fact) for key, fact in facts.items()} for op, facts in known.items()}
        )


def facts_of(program: Program, key: str) -> dict[str, Any]:
    """One fact of every op that has it: `facts_of(program, "kernel")`."""
    return {op: facts[key] for op, facts in decisions(program).items() if key in facts}


def _kept(fact: Fact) -> Fact | ir.Attribute:
    return ir.DenseI32ArrayAttr.get([*map(int, fact)]) if isinstance(fact, np.ndarray) else fact


def decline(op: Op, reason: str, help: str = "", *, by_shape: bool = False) -> None:
    """Says why an op stays float, unless that is said already."""
    if declined(op):
        return
    with editing():
        shape = {"by_shape": ir.UnitAttr.get()} if by_shape else {}
        op.attributes[DECLINED] = attribute({"reason": reason, "help": help, **shape})


def declined(op: Op) -> tuple[str, str] | None:
    """The reason and what would help, or None."""
    if DECLINED not in op.attributes:
        return None
    said = plain(op.attributes[DECLINED])
    return said["reason"], said["help"]


def declined_by_shape(op: Op) -> bool:
    """True if the device computes nothing of this op's shape on codes, in whatever form."""
    attributes = op.attributes
    return DECLINED in attributes and "by_shape" in attributes[DECLINED]


def rounded_as(value: ir.Value, device: Device | None = None) -> str:
    """The operator of a TFLite file whose kernel's arithmetic a value has, on devices with these
    kernels alone; nothing of others, which compute it in float32 and round it once."""
    op = maker(value) if device is None or device.of_tflite else None
    return "" if op is None else string_attr(op, ROUNDED) or ""


@dataclass(frozen=True)
class Function:
    """A function of several ops that the device cannot compute on codes: what it is, the name of
    the op that ends it, why, and what would help."""

    function: str
    name: str
    reason: str
    help: str


def mark_function(ops: Iterable[Op], function: Function) -> None:
    """Says of each op that it is a part of this; a larger function takes the place of a smaller."""
    with editing():
        for op in ops:
            op.attributes[PART_OF] = attribute(vars(function))


def function_of(op: Op) -> Function | None:
    """The function that an op is a part of, where that is refused as a whole."""
    return Function(**plain(op.attributes[PART_OF])) if PART_OF in op.attributes else None
