"""Weights of any StableHLO module become low-bit constants; everything else stays as it is.

    %w = stablehlo.constant dense<...> : tensor<64x33xf32>
    ->
    %c = stablehlo.constant dense<...> : tensor<64x33xi8>
    %s = stablehlo.constant dense<...> : tensor<1x33xf32>
    %w = stablehlo.composite "jq.dequantize" %c, %s

The module may have several functions, calls, loops and dynamic dimensions: a weight is a
constant that a contraction reads, through ops that only move elements, or scale them by constants.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.base.errors import FormatError
from jq.base.from_jax import clean_scope, scope
from jq.driver.weights.options import WeightOptions, skipped
from jq.formats import get_format
from jq.frontends.tracing.constants import constant_array
from jq.ir import Op, Program, at, constant_of, dtype_of, func, ir, shape_of, walk
from jq.ir.encodings import describe, write_encodings
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.ir.ops.base import Contraction, Role
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.moves import Movement
from jq.ir.values import maker
from jq.planning.operands import WeightUse, scaled_operand


def quantize_module(module: ir.Module, options: WeightOptions) -> None:
    """Rewrites `module` (of our context) in place."""
    program = Program(module, {}, (), ())  # markers keep their functions in a program
    work = _Module(program, options)
    for function in [op for op in module.body.operations if isinstance(op, func.FuncOp)]:
        if function.is_external:
            continue
        for op in [o for block in function.regions[0].blocks for o in walk(block)]:
            rule = rule_of(op)
            if isinstance(rule, Contraction):
                work.contraction(op, rule)
    write_encodings(program, work.parts)


class _Skip(Exception):
    """Carries the reason for leaving an op as it is."""


@dataclass
class _Module:
    program: Program
    options: WeightOptions
    count: int = 0
    parts: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # by weight

    def contraction(self, op: Op, rule: Contraction) -> None:
        self.count += 1
        label = clean_scope(scope(op.location)) or f"{rule.op} {self.count}"
        try:
            self._quantize(op, rule, label)
        except (_Skip, FormatError) as reason:
            skipped(label, rule.op, str(reason))

    def _quantize(self, op: Op, rule: Contraction, label: str) -> None:
        if any(not _static(v) for v in (*op.operands, *op.results)):
            raise _Skip("dynamic shape")
        if reason := rule.decline(op):
            raise _Skip(reason)
        found = [_constant_behind(self.program, op.operands[r.index], r) for r in rule.roles(op)]
        weights = [w for w in found if w is not None]
        if not weights:
            raise _Skip("no operand is a constant")
        if len(weights) == len(found) > 1:
            raise _Skip("both operands are constant")
        for value, use in weights:
            if (marker := match(value, DEQUANTIZE)) and marker.tensor in self.parts:
                continue  # a second use of what was quantized a moment ago
            self._store(value, use, label)

    def _store(self, value: ir.Value, use: WeightUse, label: str) -> None:
        enc = self.options.encoding(use, dtype_of(value))
        owner: Any = value.owner
        array = constant_array(owner.attributes["value"], value.type)
        parts = get_format(enc.format).encode(np.asarray(array), enc)
        name = self._name(clean_scope(scope(owner.location)) or f"{label}/weight")
        with at(owner):
            values = {k: constant_of(v) for k, v in parts.items()}
            new = dequantize(self.program, enc, values, dtype_of(value), tensor=name)
        self.parts[name] = parts
        self.program.encodings[name] = describe(enc, parts, dtype_of(value))
        value.replace_all_uses_with(new)
        owner.operation.erase()

    def _name(self, base: str) -> str:
        name, n = base, 1
        while name in self.parts:
            n += 1
            name = f"{base}#{n}"
        return name


def _static(value: ir.Value) -> bool:
    kind = value.type
    return not isinstance(kind, ir.RankedTensorType) or kind.has_static_shape


def _constant_behind(
    program: Program, value: ir.Value, role: Role
) -> tuple[ir.Value, WeightUse] | None:
    """The constant (or stored weight) after movements and factors, and how it is used; None for no
    such."""
    contracted, beside = role.contracted, role.beside
    block = frozenset() if role.block_axis is None else frozenset({role.block_axis})
    while (op := maker(value)) is not None:
        marker = match(value, DEQUANTIZE)
        if marker is not None or op.operation.name == "stablehlo.constant":
            shape = shape_of(value)
            axis = max((a for a in block if shape[a] > 1), default=None)
            stored = marker.encoding if marker else None
            return value, WeightUse("", shape, contracted, axis, stored, (block | beside) - {axis})
        if (inner := scaled_operand(program, op)) is not None:
            value = inner
            continue
        rule = rule_of(op)
        if not isinstance(rule, Movement):
            return None
        contracted, block, beside = (rule.back(op, a) for a in (contracted, block, beside))
        value = op.operation.operands[0]
    return None
