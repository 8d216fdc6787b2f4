"""Shields of sums and products: what they read, or give, is computed by itself."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from jq.ir import OPS, Op, Program, dtype_of, ir, maker, reached, shape_of
from jq.ir.build import attributes_of, barrier
from jq.ir.ops.dims import Dims
from jq.ir.ops.lookup import is_product
from jq.passes.iree_mends.mend import Mend, Read, Shield
from jq.passes.iree_mends.shields.writes import element

# A reduction that is read along different axes is computed by itself.
#
#     %s = reduce %x;  %a = broadcast %s, dims = [0];  %b = broadcast %s, dims = [1];  add %a, %b
#     ->
#     %s = optimization_barrier (reduce %x);  ...
#
# IREE computes the sums where they are read, once a row of the result: distances between all pairs
# of rows were wrong. Elementwise ops in between do not matter, and two reductions that are the same
# become one there.

Path = tuple[str, ...]
MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")
DEPTH = 6  # computations that are the same so far back count as the same


class ShieldReductions(Shield):
    """A reduction that is broadcast along two different axes (`s[:, None] + s[None, :]`): the
    values of the rows are taken for those of the columns.
    Trap: traps/test_contractions.py::test_outer_product_of_a_reduction_with_itself"""

    def values(self, program: Program) -> Iterator[ir.Value]:
        """Results of reductions, of more than one number, that are read along different axes."""
        alike: dict[str, list[list[ir.Value]]] = defaultdict(list)
        for op in program.walk():
            if op.operation.name == "stablehlo.reduce" and math.prod(shape_of(op.results[0])) > 1:
                groups = alike[_form(op)]
                group = next((g for g in groups if same(maker(g[0]), op)), None)
                if group is None:
                    groups.append(list(op.results))
                else:
                    group += op.results
        for group in (group for groups in alike.values() for group in groups):
            if len({path for value in group for path in paths(value)}) > 1:
                yield from group


def paths(value: ir.Value) -> set[Path]:
    """The ways that a value is spread or turned on, by the ops on the way; two are enough."""
    found: set[Path] = set()

    def follow(place: tuple[ir.Value, Path]) -> Iterator[tuple[ir.Value, Path]]:
        value, before = place
        for use in value.uses if len(found) < 2 else ():
            op = use.owner
            way = (*before, _form(op))
            if op.operation.name in MOVES:
                (result,) = op.results
                larger = math.prod(shape_of(result)) > math.prod(shape_of(value))
                if larger or op.operation.name == "stablehlo.transpose":
                    found.add(way)
                else:
                    yield result, way
            elif is_outer(op):
                found.add((*way, str(use.operand_number)))
            elif is_elementwise(op):
                yield from ((result, before) for result in op.results)

    start: Path = ()
    reached([(value, start)], follow)
    return found


def same(one: Op | None, other: Op | None, depth: int = DEPTH) -> bool:
    """True if two ops compute the same, as far back as is looked."""
    if one is None or other is None:
        return False
    if one == other or not depth:
        return True
    return _form(one) == _form(other) and all(
        a == b or same(maker(a), maker(b), depth - 1)
        for a, b in zip(one.operands, other.operands, strict=True)
    )


def _form(op: Op) -> str:
    """The form of an op: its name, attributes, types and regions."""
    named = attributes_of(op).items()
    attributes = (f"{name}={value}" for name, value in named if not name.startswith("jq."))
    types = (str(v.type) for v in (*op.operands, *op.results))
    inside = (each.operation.name for r in op.regions for b in r.blocks for each in b)
    return " ".join((op.operation.name, *attributes, *types, *inside))


def is_outer(op: Op) -> bool:
    """True if an op is a product with one term, which IREE writes as a multiplication."""
    dims = Dims.match(op)
    if dims is None:
        return False
    shape = shape_of(op.operands[0])
    return all(shape[a] == 1 for a in dims.contracted(0))


def is_elementwise(op: Op) -> bool:
    """True if an element of the results is computed from the same element of each operand."""
    operation = op.operation
    values = [*operation.operands, *operation.results]
    if not operation.name.startswith("stablehlo.") or len(operation.regions) or not values:
        return False
    return all(isinstance(v.type, ir.RankedTensorType) for v in values) and (
        len({shape_of(v) for v in values if shape_of(v)}) == 1
    )


# Hides from the compiler what is reduced, where it is computed from equal constants alone.
#
#     reduce (convert %w), %w a weight of equal elements
#     ->
#     reduce (optimization_barrier (convert %w))
#
# IREE writes the one number into the sum: that of [[127, 127, 127]] in int8 was 127.

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")


class ShieldEqual(Shield):
    """A sum, or a window, over what is computed from equal constants alone (`jnp.full((2, 3), 7,
    jnp.int8).astype(jnp.int32).sum(1)`, or a weight of equal elements) adds the number once for
    each vector instead of once for each element.
    Trap: traps/test_contractions.py::test_sums_of_equal_numbers"""

    def values(self, program: Program) -> Iterable[Read]:
        weights = program.weights.items()
        equal = {program.weight(name) for name, data in weights if element(data) is not None}
        for op in program.walk():
            if _gives_equal(op, equal):
                equal.update(op.results)
            if op.operation.name in REDUCTIONS:
                for i, value in enumerate(list(op.operands)[: len(op.operands) // 2]):
                    made = maker(value)  # a constant is reduced rightly
                    if value in equal and made and made.operation.name != "stablehlo.constant":
                        yield op, i


def _gives_equal(op: Op, equal: set[ir.Value]) -> bool:
    """True if all elements of a result are one number, which constants alone decide."""
    name, operands = op.operation.name, op.operands
    if name == "stablehlo.constant":
        data = op.attributes["value"]
        return isinstance(data, ir.DenseElementsAttr) and data.is_splat
    if name == "stablehlo.optimization_barrier" or len(op.results) != 1:
        return False
    if not len(operands) or any(operand not in equal for operand in operands):
        return False
    return name in MOVES or is_elementwise(op) or not shape_of(op.results[0])


# Contractions of unsigned integers are computed on signed ones behind a barrier.
#
# dot_general(%x : ui8, %w) -> dot_general(barrier(convert %x : i32), ...)


class ShieldUnsigned(Mend):
    """Unsigned operands of a product are taken for signed ones, also after a `convert`.
    Trap: traps/test_contractions.py::test_unsigned_operands"""

    def finds(self, op: Op) -> bool:
        """A product with an operand that is unsigned, or converted from what is."""
        values = list(op.operands) if is_product(op) else []
        values += [made.operands[0] for v in values if (made := maker(v, "stablehlo.convert"))]
        return any(dtype_of(v).kind == "u" for v in values)

    def rewritten(self, op: Op) -> None:
        result = dtype_of(op.results[0])
        wide = result if result.kind != "u" else np.dtype(f"i{result.itemsize}")
        for i, value in enumerate(op.operands):
            op.operands[i] = barrier(OPS.convert(value, wide))
