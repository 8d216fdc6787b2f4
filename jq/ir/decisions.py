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
is there as well: no op of that shape is computed on codes, in whatever form.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.mlir_context import editing
from jq.ir.program import Program
from jq.ir.values import Op

DECISIONS, DECLINED, PART_OF = "jq.decisions", "jq.declined", "jq.part_of"
SMOOTHING = "smoothing"  # what `smooth` divides a tensor's channels by, as powers of two
Fact = str | Sequence[str] | np.ndarray  # a text, texts, or whole numbers
Facts = Mapping[str, Fact]


def decisions(program: Program) -> dict[str, dict[str, Any]]:
    """The decisions by the op's name: texts, tuples of texts, and arrays of whole numbers."""
    attributes = program.main.attributes
    if DECISIONS not in attributes:
        return {}
    return {
        op.name: {fact.name: _read(fact.attr) for fact in op.attr} for op in attributes[DECISIONS]
    }


def decide(program: Program, found: Mapping[str, Facts]) -> None:
    """Adds facts about ops to those that are known; a newer one takes the place of an older."""
    known = decisions(program)
    for op, facts in found.items():
        known[op] = known.get(op, {}) | dict(facts)
    if not known:
        return
    with editing():
        every = {
            op: ir.DictAttr.get({key: _write(fact) for key, fact in facts.items()})
            for op, facts in known.items()
        }
        program.main.attributes[DECISIONS] = ir.DictAttr.get(every)


def facts_of(program: Program, key: str) -> dict[str, Any]:
    """One fact of every op that has it: `facts_of(program, "kernel")`."""
    return {op: facts[key] for op, facts in decisions(program).items() if key in facts}


def _write(fact: Fact) -> ir.Attribute:
    if isinstance(fact, str):
        return ir.StringAttr.get(fact)
    if isinstance(fact, np.ndarray):
        return ir.DenseI32ArrayAttr.get([int(number) for number in fact])
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in fact])


def _read(attribute: ir.Attribute) -> Any:
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(ir.StringAttr(text).value for text in attribute)
    if isinstance(attribute, ir.DenseI32ArrayAttr):
        return np.array(attribute, np.int32)
    return ir.StringAttr(attribute).value


def decline(op: Op, reason: str, help: str = "", *, by_shape: bool = False) -> None:
    """Says why an op stays float, unless that is said already."""
    if declined(op):
        return
    with editing():
        said: dict[str, ir.Attribute] = {
            "reason": ir.StringAttr.get(reason),
            "help": ir.StringAttr.get(help),
        }
        if by_shape:
            said["by_shape"] = ir.UnitAttr.get()
        op.attributes[DECLINED] = ir.DictAttr.get(said)


def declined(op: Op) -> tuple[str, str] | None:
    """The reason and what would help, or None."""
    if DECLINED not in op.attributes:
        return None
    said = op.attributes[DECLINED]
    return ir.StringAttr(said["reason"]).value, ir.StringAttr(said["help"]).value


def declined_by_shape(op: Op) -> bool:
    """True if the device computes nothing of this op's shape on codes, in whatever form."""
    attributes = op.attributes
    return DECLINED in attributes and "by_shape" in attributes[DECLINED]


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
        said = {key: ir.StringAttr.get(text) for key, text in vars(function).items()}
        for op in ops:
            op.attributes[PART_OF] = ir.DictAttr.get(said)


def function_of(op: Op) -> Function | None:
    """The function that an op is a part of, where that is refused as a whole."""
    if PART_OF not in op.attributes:
        return None
    said = op.attributes[PART_OF]
    return Function(
        **{field.name: ir.StringAttr(said[field.name]).value for field in fields(Function)}
    )
