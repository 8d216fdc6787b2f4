"""Weights that are decoded where one layer or some rows are looked up, decoded as a whole.

    multiply (convert (dynamic_slice %codes, %i)), (dynamic_slice %scales, %i)
    ->
    dynamic_slice (multiply (convert %codes), %scales), %i

as a scan over layers has them, and an embedding whose codes and scales are looked up beside each
other. `store_arriving` then finds the codes of a weight in front of the lookup, as anywhere else.
Every op in between works on each element or moves them within a layer or row, so it does the same
to all of them at once: in front of a new axis instead of those that come from the indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, constant, i64_array, integer, integers, like, string_attr
from jq.ir.constants import evaluate
from jq.ir.values import maker
from jq.passes.prepare._stored_parts import FLOATS

OPS = StableHloOps()
SLICE, GATHER = "stablehlo.dynamic_slice", "stablehlo.gather"
BITS = {"and", "not", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"}
NUMBERS = {"add", "convert", "divide", "multiply", "negate", "power", "remainder", "subtract"}
CHOICES = {"abs", "compare", "exponential", "floor", "maximum", "minimum", "select", "sign"}
EACH = BITS | NUMBERS | CHOICES


@dataclass(frozen=True)
class Lookup:
    """A float value, the whole that it is looked up in, and the lookup.

    `layer`: one index picks it, as a loop does from a stack of layers.
    """

    value: ir.Value
    whole: ir.Value
    found: ir.Value
    layer: bool


@dataclass(frozen=True)
class _Key:
    """What is looked up: how many there are, and with which indices."""

    kind: str
    count: int
    index: ir.Value


@dataclass(frozen=True)
class _Whole:
    """All layers or rows: [count, *rest] for a value whose first `lead` axes come from indices."""

    value: ir.Value
    lead: int

    @property
    def rest(self) -> list[int]:
        return list(shape_of(self.value)[1:])


def whole_lookups(program: Program) -> list[Lookup]:
    """The lookups of codes; new ops compute the wholes, and look up in them after each value."""
    found: list[Lookup] = []
    done, first = dict[_Key, _Decoder](), program.body.operations[0]
    for op in list(program.walk()):
        key = _key(program, op)
        if key is None or dtype_of(op.operation.operands[0]).name in FLOATS:
            continue
        decoder = done.setdefault(key, _Decoder(program, key, op, first))
        found += decoder.lookups(op.operation.results[0])
    return found


def is_looked_up(program: Program, value: ir.Value) -> bool:
    """Whether a value is one layer, or some rows, of a weight."""
    op = maker(value)
    if op is not None and op.operation.name == "stablehlo.reshape":
        op = maker(op.operation.operands[0])
    return op is not None and _key(program, op) is not None


def _key(program: Program, op: Op) -> _Key | None:
    """The key of a lookup of whole layers or rows of a weight; None for other ops."""
    name = op.operation.name
    if name not in (SLICE, GATHER) or program.weight_name(op.operation.operands[0]) is None:
        return None
    shape, index = shape_of(op.operation.operands[0]), op.operation.operands[1]
    if not shape or tuple(integers(op, "slice_sizes")) != (1, *shape[1:]):
        return None
    if name == GATHER:
        d = stablehlo.GatherDimensionNumbers(op.operation.attributes["dimension_numbers"])
        rank = len(shape_of(op.operation.results[0]))
        plain = list(d.start_index_map) == [0] == list(d.collapsed_slice_dims)
        last = list(d.offset_dims) == list(range(rank - len(shape) + 1, rank))
        if not plain or not last or list(d.operand_batching_dims):
            return None
    return _Key(name, shape[0], index)


@dataclass
class _Decoder:
    """What is computed of the lookups of one key, for all layers or rows."""

    program: Program
    key: _Key
    op: Op  # one of the lookups
    first: Op  # of the program: all is computed in front of it
    known: dict[ir.Value, _Whole | None] = field(default_factory=dict)
    given: set[ir.Value] = field(default_factory=set)

    def lookups(self, first: ir.Value) -> Iterator[Lookup]:
        """The last floats that are computed from a lookup alone."""
        waiting, seen = [first], set[ir.Value]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            results = [list(use.owner.operation.results) for use in value.uses]
            inside = [r[0] for r in results if len(r) == 1 and self.whole(r[0])]
            waiting += inside
            last = not results or len(inside) < len(results)
            if last and dtype_of(value).name in FLOATS and value not in self.given:
                self.given.add(value)
                whole = self.whole(value)
                assert whole is not None
                found = self._looked_up(value, whole)
                yield Lookup(value, whole.value, found, self.key.kind == SLICE)

    def whole(self, value: ir.Value) -> _Whole | None:
        if value not in self.known:
            self.known[value] = self._whole(value)
        return self.known[value]

    def _whole(self, value: ir.Value) -> _Whole | None:
        op = maker(value)
        if op is None:
            return None
        if _key(self.program, op) == self.key:
            table = op.operation.operands[0]
            return _Whole(table, len(shape_of(value)) - len(shape_of(table)) + 1)
        name, operands = op.operation.name.removeprefix("stablehlo."), list(op.operation.operands)
        wholes = [self.whole(v) for v in operands]
        known = [w for w in wholes if w is not None]
        if not known or any(w.lead != known[0].lead for w in known):
            return None
        with at(self.first):
            if name in EACH or name == "concatenate":
                parts = [
                    w.value if w else self._constant(v, known[0].lead)
                    for v, w in zip(operands, wholes, strict=True)
                ]
                if any(p is None for p in parts):
                    return None
                if name == "concatenate":
                    return _concatenated(op, parts, known[0].lead)
                return _of_each(op, parts, known[0])
            if name == GATHER.removeprefix("stablehlo.") and wholes[0] is None:
                return _from_table(self.program, op, known[0])
            moved = _MOVED.get(name)
            return moved(op, known[0]) if moved and len(operands) == 1 else None

    def _constant(self, value: ir.Value, lead: int) -> ir.Value | None:
        """A constant of all layers or rows, where it is the same for each."""
        array = evaluate(self.program, value)
        if array is None or not array.size:
            return None
        array = np.asarray(array)
        one = array[(0,) * lead]
        if not (array == one).all():
            return None
        plain = (one == one.flat[0]).all()
        part = _numbers(np.asarray(one.flat[0] if plain else one, array.dtype))
        dims = i64_array([] if plain else range(1, one.ndim + 1))
        kind = tensor_type([self.key.count, *one.shape], array.dtype)
        return stablehlo.broadcast_in_dim(kind, part, dims)

    def _looked_up(self, value: ir.Value, whole: _Whole) -> ir.Value:
        """A value as what its index finds in the whole."""
        rest, name = whole.rest, string_attr(self.op, NAME)
        dtype, operands = dtype_of(value), list(self.op.operation.operands)
        with at(value.owner, after=True):
            attrs: dict[str, ir.Attribute] = {"slice_sizes": i64_array([1, *rest])}
            if name:
                attrs[NAME] = ir.StringAttr.get(f"{name}#whole{len(self.given)}")
            if self.key.kind == SLICE:
                zero = OPS.constant(np.zeros((), dtype_of(self.key.index)))
                starts = [self.key.index, *[zero] * len(rest)]
                found = like(self.op, [whole.value, *starts], [1, *rest], dtype, **attrs)
            else:
                d = stablehlo.GatherDimensionNumbers(
                    self.op.operation.attributes["dimension_numbers"]
                )
                result = shape_of(self.op.operation.results[0])
                lead = list(result[: len(result) - len(list(d.offset_dims))])
                attrs["dimension_numbers"] = stablehlo.GatherDimensionNumbers.get(
                    offset_dims=[*range(len(lead), len(lead) + len(rest))],
                    collapsed_slice_dims=[0],
                    operand_batching_dims=[],
                    start_indices_batching_dims=[],
                    start_index_map=[0],
                    index_vector_dim=d.index_vector_dim,
                )
                found = like(self.op, [whole.value, operands[1]], [*lead, *rest], dtype, **attrs)
            return OPS.reshape(found, shape_of(value))


def _numbers(array: np.ndarray) -> ir.Value:
    """A constant, also of unsigned integers."""
    if array.dtype.kind != "u":
        return constant(array)
    wide = constant(array.astype(np.int64))
    return stablehlo.convert(tensor_type(array.shape, array.dtype), wide)


def _of_each(op: Op, parts: Sequence[ir.Value], first: _Whole) -> _Whole | None:
    shape = shape_of(first.value)
    if any(shape_of(p) != shape for p in parts):
        return None
    return _Whole(like(op, parts, shape, dtype_of(op.operation.results[0])), first.lead)


def _concatenated(op: Op, parts: Sequence[ir.Value], lead: int) -> _Whole | None:
    axis = integer(op, "dimension")
    if axis < lead:
        return None
    shape = list(shape_of(parts[0]))
    shape[axis - lead + 1] = sum(shape_of(p)[axis - lead + 1] for p in parts)
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis - lead + 1)
    return _Whole(like(op, parts, shape, dtype_of(parts[0]), dimension=dimension), lead)


def _reshaped(op: Op, w: _Whole) -> _Whole | None:
    before, after = shape_of(op.operation.operands[0]), shape_of(op.operation.results[0])
    outer = math.prod(before[: w.lead])
    lead = next((n for n in range(len(after) + 1) if math.prod(after[:n]) == outer), None)
    if lead is None or not math.prod(after):
        return None
    shape = [shape_of(w.value)[0], *after[lead:]]
    return _Whole(like(op, [w.value], shape, dtype_of(w.value)), lead)


def _transposed(op: Op, w: _Whole) -> _Whole | None:
    order = list(integers(op, "permutation"))
    if order[: w.lead] != list(range(w.lead)):
        return None
    own, before = [0, *(a - w.lead + 1 for a in order[w.lead :])], shape_of(w.value)
    shape = [before[a] for a in own]
    moved = like(op, [w.value], shape, dtype_of(w.value), permutation=i64_array(own))
    return _Whole(moved, w.lead)


def _broadcast(op: Op, w: _Whole) -> _Whole | None:
    dims, before = list(integers(op, "broadcast_dimensions")), shape_of(op.operation.operands[0])
    after = shape_of(op.operation.results[0])
    if dims[: w.lead] != list(range(w.lead)) or before[: w.lead] != after[: w.lead]:
        return None
    shape = [shape_of(w.value)[0], *after[w.lead :]]
    own = i64_array([0, *(d - w.lead + 1 for d in dims[w.lead :])])
    spread = like(op, [w.value], shape, dtype_of(w.value), broadcast_dimensions=own)
    return _Whole(spread, w.lead)


def _cut(op: Op, w: _Whole) -> _Whole | None:
    before, after = shape_of(op.operation.operands[0]), shape_of(op.operation.results[0])
    if before[: w.lead] != after[: w.lead]:
        return None
    count = shape_of(w.value)[0]
    names = {"start_indices": 0, "limit_indices": count, "strides": 1}
    attrs = {k: i64_array([v, *integers(op, k)[w.lead :]]) for k, v in names.items()}
    shape = [count, *after[w.lead :]]
    return _Whole(like(op, [w.value], shape, dtype_of(w.value), **attrs), w.lead)


def _bits(op: Op, w: _Whole) -> _Whole | None:
    result = op.operation.results[0]
    if len(shape_of(op.operation.operands[0])) == w.lead or len(shape_of(result)) < w.lead:
        return None
    shape = [shape_of(w.value)[0], *shape_of(result)[w.lead :]]
    return _Whole(like(op, [w.value], shape, dtype_of(result)), w.lead)


def _from_table(program: Program, op: Op, w: _Whole) -> _Whole | None:
    """Numbers of a table that is the same for all; the indices are what was looked up."""
    table = evaluate(program, op.operation.operands[0])
    d = stablehlo.GatherDimensionNumbers(op.operation.attributes["dimension_numbers"])
    result, shift = op.operation.results[0], 1 - w.lead
    if table is None or any(a < w.lead for a in d.offset_dims) or list(d.operand_batching_dims):
        return None
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[a + shift for a in d.offset_dims],
        collapsed_slice_dims=list(d.collapsed_slice_dims),
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=list(d.start_index_map),
        index_vector_dim=d.index_vector_dim + shift,
    )
    shape = [shape_of(w.value)[0], *shape_of(result)[w.lead :]]
    operands = [constant(np.asarray(table)), w.value]
    return _Whole(like(op, operands, shape, dtype_of(result), dimension_numbers=numbers), w.lead)


_MOVED = {
    "reshape": _reshaped,
    "transpose": _transposed,
    "broadcast_in_dim": _broadcast,
    "slice": _cut,
    "bitcast_convert": _bits,
}
