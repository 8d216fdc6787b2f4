"""Weights that arrive quantized keep their codes, in the format that they are in.

Behind the operand of a contraction (`_stored_parts` finds codes, scale and zero point): blocks are
what shares a scale. Only where the format gives the numbers that the model computes, within two
roundings of its type. What is added to such a weight, or scales it besides, stays apart
(`distribute-products`); what does not fit any format is noted, and becomes a float weight."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.formats import Encoding
from jq.ir import Program, dtype_of, ir, maker, shape_of
from jq.ir.affine import constant_of
from jq.ir.encodings import store
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.lookup import rule_of
from jq.ir.values import operands_of, reached
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.passes.prepare.stored_weights import FLOATS
from jq.passes.prepare.stored_weights import _kept_codes as kept
from jq.passes.prepare.stored_weights._blocks import RowOrder, products, reorder, row_order
from jq.passes.prepare.stored_weights._lookups import whole_lookups
from jq.passes.prepare.stored_weights._lost_codes import fold_factors, lost_codes
from jq.passes.prepare.stored_weights._stored_parts import Arriving, arriving
from jq.planning.operands import contractions, unmoved

DIVIDE = "stablehlo.divide"
WHOLE = ("stablehlo.constant", "stablehlo.broadcast_in_dim")  # a product of its own would be dense
SUMS, FACTORS = ("stablehlo.add", "stablehlo.subtract"), ("stablehlo.multiply", DIVIDE)


@dataclass
class _Found:
    """A value that weights alone make, integers or 8-bit floats among them.

    Attributes:
        parts: how, where that is known.
        lost: the weight with its codes, if nothing holds them; "": they are no codes.
        layers: each index of the first axis has scales of its own, as kernels cut a stack.
    order: that in which its rows are stored, where it is another."""

    value: ir.Value
    names: set[str]
    parts: Arriving | None
    lost: str
    layers: bool = False
    order: RowOrder | None = None


def store_arriving(program: Program) -> tuple[bool, list[str]]:
    """Stores the quantized weights of a model. True if there were any, and the names of those that
    no format holds, or that come in a form that is not known."""
    fold_factors(program)
    once, lost, seen = Stored(), list[str](), set[ir.Value]()
    lookups = whole_lookups(program)
    layers = {x.whole for x in lookups if x.layer}
    waiting = list(dict.fromkeys([*(x.whole for x in lookups), *_candidates(program)]))
    while waiting:
        seen.update(waiting)
        found = list(_quantized(program, waiting, Constant(program)))
        waiting = []
        for f in found:
            f.layers = f.value in layers
        for f, made in zip(found, _made(program, found), strict=True):
            if made is not None:
                name, dtype = _largest(program, f.names), dtype_of(f.value)
                if f.order is not None:
                    reorder(products(f.value, f.order.axis) or (), f.order)
                f.value.replace_all_uses_with(once.get(program, name, *made, dtype))
            elif terms := _terms(program, f.value):
                waiting += [v for v in terms if v not in seen]
            elif f.lost:
                lost.append(f.lost)
    for lookup in lookups:
        reshaped = maker(lookup.found, "stablehlo.reshape")
        read = reshaped.operands[0] if reshaped else lookup.found
        if match(operands_of(read)[0], DEQUANTIZE):
            lookup.value.replace_all_uses_with(lookup.found)
    program.drop_dead()
    return bool(once.known), list(dict.fromkeys(lost))


@dataclass
class Stored:
    """Weights that are stored once, however many ways the model takes to them."""

    known: list[tuple[str, kept.Parts, np.dtype[Any], ir.Value]] = field(default_factory=list)

    def get(
        self, program: Program, name: str, enc: Encoding, parts: kept.Arrays, dtype: np.dtype[Any]
    ) -> ir.Value:
        parts = kept.without_zero_scales(enc, parts)
        for other, (own, arrays), kind, value in self.known:
            same = (other, own, kind, arrays.keys()) == (name, enc, dtype, parts.keys())
            if same and all(np.array_equal(arrays[k], parts[k]) for k in parts):
                return value
        value = store(program, name, enc, parts, dtype)
        self.known.append((name, (enc, dict(parts)), dtype, value))
        return value


def _quantized(
    program: Program, values: Sequence[ir.Value], constant: Constant
) -> Iterator[_Found]:
    for value in values:
        names = constant.weights(value)
        if not names or program.weight_name(value):
            continue
        parts = arriving(program, value)
        if parts is None:
            name, weights = lost_codes(program, value, constant) or "", program.weights
            # Integers that have a bit for each number, and floats no number for each.
            floats = sum(weights[n].size for n in names if weights[n].dtype.name in FLOATS)
            bits = 8 * sum(weights[n].nbytes for n in names if weights[n].dtype.kind in "iub")
            if name or floats < math.prod(shape_of(value)) <= bits:
                yield _Found(value, names, None, name)
        elif pays(program, value, names):
            yield _Found(value, names, parts, _largest(program, names))


def _largest(program: Program, names: set[str]) -> str:
    return max(names, key=lambda n: program.weights[n].size)


def _terms(program: Program, value: ir.Value) -> list[ir.Value]:
    """The terms of a value, or the one that is scaled, as `distribute-products` takes it apart."""
    op = maker(value, *SUMS, *FACTORS)
    if op is None:
        return []
    operands = list(op.operands)
    if op.operation.name in SUMS:
        makers = [maker(unmoved(v)) for v in operands]
        apart = all(m is not None and m.operation.name not in WHOLE for m in makers)
        return operands if apart else []
    for inner, other in (operands, operands[::-1])[: 1 if op.operation.name == DIVIDE else 2]:
        factor = constant_of(program, other)
        if factor is not None and sum(n > 1 for n in factor.shape) <= 1:
            return [inner]
    return []


def _made(program: Program, found: Sequence[_Found]) -> Iterator[kept.Parts | None]:
    """The stored parts of each."""
    wanted = ((f.value, *(f.parts.values if f.parts else ())) for f in found)
    arrays = evaluate_all(program, (v for each in wanted for v in each if v is not None))
    for f in found:
        whole, given = arrays[f.value], {n: program.weights[n] for n in f.names}
        own = f.parts is not None and program.weight_name(unmoved(f.parts.codes)) is not None
        made = None if f.parts is None else _held(f, f.parts, arrays, whole, given, own)
        made = made or kept.integral(whole, given)
        yield kept.by_layer(made) if made and f.layers else made


def _held(
    f: _Found,
    parts: Arriving,
    arrays: Mapping[ir.Value, np.ndarray],
    whole: np.ndarray,
    given: kept.Arrays,
    own: bool,
) -> kept.Parts | None:
    """The stored parts of a value, in another order of its rows where only products read them."""
    values = [None if v is None else arrays[v] for v in parts.values]
    made = kept.held(parts, values, whole, given, own)
    if made is not None or f.layers:
        return made
    _, scale, zero, _, minimum = values
    parameters = [a for a in (scale, zero if minimum is None else minimum) if a is not None]
    order = row_order(whole.shape, parameters) if parameters else None
    if order is None or products(f.value, order.axis) is None:
        return None
    ordered = [order.applied(a, whole.shape) for a in values]
    made = kept.held(parts, ordered, np.take(whole, order.rows, order.axis), given, own)
    f.order = None if made is None else order
    return made


def _candidates(program: Program) -> Iterator[ir.Value]:
    """The values behind what contractions read, further up than a stored tensor moves."""
    for op, rule in list(contractions(program)):
        for role in rule.roles(op):
            value = op.operands[role.index]
            while (
                (mover := maker(value, "stablehlo.transpose", "stablehlo.convert"))
                and rule_of(mover) is not None
                and dtype_of(mover.operands[0]).name in FLOATS
            ):
                value = mover.operands[0]
            if dtype_of(value).name in FLOATS:
                yield value


def pays(program: Program, value: ir.Value, names: set[str]) -> bool:
    """False for what a small weight is repeated to: more elements than quarters of bytes."""
    return math.prod(shape_of(value)) <= 4 * sum(program.weights[n].nbytes for n in names)


def source_of(program: Program, value: ir.Value) -> str | None:
    """The name of the weight that a value is computed from, the first where there are several."""
    names = map(program.weight_name, reached([value], lambda v: operands_of(v)[:1]))
    return next((name for name in names if name is not None), None)
