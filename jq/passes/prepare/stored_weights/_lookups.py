"""Weights that are decoded where one layer or some rows are looked up, decoded as a whole.

    multiply (convert (dynamic_slice %codes, %i)), (dynamic_slice %scales, %i)
    ->
    dynamic_slice (multiply (convert %codes), %scales), %i

as a scan over layers has them, and an embedding whose codes and scales are looked up beside each
other. `store_arriving` then finds the codes of a weight in front of the lookup, as anywhere else.
Every op in between works on each element or moves them within a layer or row, so it does the same
to all of them at once: in front of a new axis instead of those that come from the indices."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_of, ir, maker, shape_of, stablehlo, tensor_type
from jq.ir.build import NAME, constant_of, i64_array, like, string_attr
from jq.ir.constants import evaluate
from jq.ir.ops.rules.gather import row_numbers
from jq.passes.prepare.stored_weights import FLOATS
from jq.passes.prepare.stored_weights import _whole_ops as whole_ops


@dataclass(frozen=True)
class Lookup:
    """A float value, the whole that it is looked up in, and the lookup.

    `layer`: one index picks it, as a loop does from a stack of layers."""

    value: ir.Value
    whole: ir.Value
    found: ir.Value
    layer: bool


def whole_lookups(program: Program) -> list[Lookup]:
    """The lookups of codes; new ops compute the wholes, and look up in them after each value."""
    lookups: list[Lookup] = []
    done, first = dict[whole_ops.Key, _Decoder](), program.body.operations[0]
    for op in list(program.walk()):
        key = whole_ops.key_of(program, op)
        if key is None or dtype_of(op.operands[0]).name in FLOATS:
            continue
        decoder = done.setdefault(key, _Decoder(program, key, op, first))
        lookups += decoder.lookups(op.results[0])
    return lookups


@dataclass
class _Decoder:
    """Floats that are computed from the lookups of one key, for all layers or rows."""

    program: Program
    key: whole_ops.Key
    op: Op  # one of the lookups
    first: Op  # of the program: all is computed in front of it
    known: dict[ir.Value, whole_ops.Whole | None] = field(default_factory=dict)
    given: set[ir.Value] = field(default_factory=set)

    def lookups(self, first: ir.Value) -> Iterator[Lookup]:
        """The last floats that are computed from a lookup alone."""
        waiting, seen = [first], set[ir.Value]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            results = [list(use.owner.results) for use in value.uses]
            inside = [r[0] for r in results if len(r) == 1 and self.whole(r[0])]
            waiting += inside
            last = not results or len(inside) < len(results)
            if last and dtype_of(value).name in FLOATS and value not in self.given:
                self.given.add(value)
                whole = self.whole(value)
                assert whole is not None
                found = self._looked_up(value, whole)
                yield Lookup(value, whole.value, found, self.key.kind == whole_ops.SLICE)

    def whole(self, value: ir.Value) -> whole_ops.Whole | None:
        if value not in self.known:
            self.known[value] = self._whole(value)
        return self.known[value]

    def _whole(self, value: ir.Value) -> whole_ops.Whole | None:
        op = maker(value)
        if op is None:
            return None
        if whole_ops.key_of(self.program, op) == self.key:
            table = op.operands[0]
            return whole_ops.Whole(table, len(shape_of(value)) - len(shape_of(table)) + 1)
        name, operands = op.operation.name.removeprefix("stablehlo."), list(op.operands)
        wholes = [self.whole(v) for v in operands]
        known = [w for w in wholes if w is not None]
        if not known or any(w.lead != known[0].lead for w in known):
            return None
        with at(self.first):
            if name in whole_ops.EACH or name == "concatenate":
                parts = [
                    w.value if w else self._constant(v, known[0].lead)
                    for v, w in zip(operands, wholes, strict=True)
                ]
                if any(p is None for p in parts):
                    return None
                together = whole_ops.concatenated if name == "concatenate" else whole_ops.of_each
                return together(op, parts, known[0])
            if name == whole_ops.GATHER.removeprefix("stablehlo.") and wholes[0] is None:
                return whole_ops.from_table(self.program, op, known[0])
            return whole_ops.moved(op, known[0]) if name in whole_ops.MOVED else None

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
        part = constant_of(np.asarray(one.flat[0] if plain else one, array.dtype))
        dims = i64_array([] if plain else range(1, one.ndim + 1))
        kind = tensor_type([self.key.count, *one.shape], array.dtype)
        return stablehlo.broadcast_in_dim(kind, part, dims)

    def _looked_up(self, value: ir.Value, whole: whole_ops.Whole) -> ir.Value:
        """A value as what its index finds in the whole."""
        rest, name = whole.rest, string_attr(self.op, NAME)
        dtype, operands = dtype_of(value), list(self.op.operands)
        with at(value.owner, after=True):
            attrs: dict[str, ir.Attribute] = {"slice_sizes": i64_array([1, *rest])}
            if name:
                attrs[NAME] = ir.StringAttr.get(f"{name}#whole{len(self.given)}")
            if self.key.kind == whole_ops.SLICE:
                zero = OPS.constant(np.zeros((), dtype_of(self.key.index)))
                starts = [self.key.index, *[zero] * len(rest)]
                read = like(self.op, [whole.value, *starts], [1, *rest], dtype, **attrs)
            else:
                d = stablehlo.GatherDimensionNumbers(self.op.attributes["dimension_numbers"])
                result = shape_of(self.op.results[0])
                lead = list(result[: len(result) - len(list(d.offset_dims))])
                attrs["dimension_numbers"] = row_numbers(len(lead), len(rest), d.index_vector_dim)
                read = like(self.op, [whole.value, operands[1]], [*lead, *rest], dtype, **attrs)
            return OPS.reshape(read, shape_of(value))
