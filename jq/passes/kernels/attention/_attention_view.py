"""Ways to see the dimensions of two products as batch, heads, rows and columns.

Both kernels take q [B, queries, heads, D], k and v [B, keys, kv_heads, D], a mask that is the same
for every head, and give [B, queries, heads, D]. Which dimensions of a model's products are heads is
a matter of view: the one that moves least is taken."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jq.ir import OPS, integers, ir, maker, shape_of
from jq.ir.ops.dims import Dims
from jq.passes.kernels._kernel import NoKernel
from jq.passes.kernels.attention._attention import Between, Mask


@dataclass(frozen=True)
class Operand:
    """A value and the order that brings its axes to [batch..., rows, heads..., dim]."""

    value: ir.Value
    order: tuple[int, ...]

    def arranged(self) -> ir.Value:
        return OPS.transpose(self.value, self.order)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(shape_of(self.value)[a] for a in self.order)


@dataclass(frozen=True)
class View:
    """One way to see the products' dimensions as batch, heads, rows and columns.

    Attributes:
        batch, heads: axes of the scores that are batch dimensions and heads, in order.
        rows, keys: the axes of the scores that count queries and keys.
        result: the second product's axes: axes of the scores, None for the columns of v.
        swapped: q is the right operand of the first product."""

    q: Operand
    k: Operand
    v: Operand
    batch: tuple[int, ...]
    heads: tuple[int, ...]
    rows: int
    keys: int
    result: tuple[int | None, ...]
    swapped: bool

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a kernel's description that q, k and v decide (see `Heads`)."""
        b, q, k = len(self.batch), self.q.sizes, self.k.sizes
        heads, shared, dim = math.prod(q[b + 1 : -1]), math.prod(k[b + 1 : -1]), q[-1]
        rows = {"batch": math.prod(q[:b]), "queries": q[b], "keys": k[b]}
        columns = {"heads": heads, "kv_heads": shared, "dim": dim}
        widths = heads * dim, shared * dim, shared * dim
        return {**rows, **columns, "widths": widths, "starts": (0, 0, 0)}

    def mask(self, mask: Mask | None) -> tuple[str, list[ir.Value]]:
        """The kernel's kind of mask, and the mask: one number a key, or one a query and key."""
        if mask is None:
            return "none", []
        repeated = list(self.heads)
        if self.rows not in mask.varies:
            repeated.append(self.rows)
        order = [*self.batch, *self.heads, self.rows, self.keys]
        return "keys" if self.rows in repeated else "full", [mask.part(repeated, order)]

    def restore(self, y: ir.Value) -> ir.Value:
        """The kernel's result as the second product has it."""
        axes: list[int | None] = [*self.batch, self.rows, *self.heads, None]
        return OPS.transpose(OPS.reshape(y, self.q.sizes), [axes.index(a) for a in self.result])


Axes = dict[int | None, int]  # axis of the scores (None: of a head's columns) -> of an operand


def view(
    products: tuple[Dims, Dims],
    operands: tuple[ir.Value, ir.Value],
    values: ir.Value,
    side: int,
    between: Between,
) -> View:
    """The best view of two products; raises `NoKernel` when there is none.

    Args:
        operands: of the first product.
        values: the operand of the second product that is not the probabilities.
        side: the operand of the second product that the probabilities are."""
    first, second = products
    if len(first.contract) != 1 or len(second.contract) != 1:
        raise NoKernel("no attention kernel for these dimensions")
    maps, keys = _maps(first, operands), between.axes[-1]
    swapped = keys in maps[0]
    (q, k), (q_map, k_map) = operands, maps
    if swapped:
        (k, q), (k_map, q_map) = operands, maps
    batch = sorted(a for a in q_map if a is not None and a in k_map)
    rows = [a for a in q_map if a is not None and a not in batch]
    if not batch or keys in batch or len(rows) not in (1, 2) or len(k_map) != len(batch) + 2:
        raise NoKernel("no attention kernel for these dimensions")
    v_map, result = _values_map(second, side, between, values, keys)
    if sorted(a for a in v_map if a is not None and a != keys) != batch:
        raise NoKernel("the heads of the scores are not those of the values")
    if shape_of(values)[v_map[None]] != shape_of(q)[q_map[None]]:
        raise NoKernel("values of another width than keys")
    make = partial(View, keys=keys, result=result, swapped=swapped)
    found = list(_views(make, (q, k, values), (q_map, k_map, v_map), batch, rows))
    hidden = between.mask.varies if between.mask else set()
    fitting = [v for v in found if not hidden & set(v.heads)]
    if not fitting:
        raise NoKernel("a mask of its own for every head")
    return min(
        fitting, key=lambda v: sum(list(x.order) != sorted(x.order) for x in (v.q, v.k, v.v))
    )


def _views(
    make: "partial[View]",
    operands: tuple[ir.Value, ir.Value, ir.Value],
    maps: tuple[Axes, Axes, Axes],
    batch: list[int],
    rows: list[int],
) -> Iterator[View]:
    """Each of `rows` as that of queries, and the last axis of the batch as heads or not."""
    (q, k, v), (q_map, k_map, v_map), keys = operands, maps, make.keywords["keys"]
    for row in rows:
        group = [a for a in rows if a != row]
        for outer, shared in ((batch[:-1], batch[-1:]), (batch, [])):
            heads, order = [*shared, *group], [*outer, keys, *shared, None]
            pair = _unrepeated(
                _through(k, [k_map[a] for a in order]),
                _through(v, [v_map[a] for a in order]),
                len(outer) + 1 if shared else None,
            )
            queries = _through(q, [q_map[a] for a in (*outer, row, *heads, None)])
            yield make(queries, *pair, batch=tuple(outer), heads=tuple(heads), rows=row)


def _maps(first: Dims, operands: tuple[ir.Value, ir.Value]) -> tuple[Axes, Axes]:
    """Axes of the scores in either operand of their product."""
    count = len(first.batch)
    found: list[Axes] = []
    for side, x in enumerate(operands):
        free = first.free(side, len(shape_of(x)))
        axes: Axes = {i: pair[side] for i, pair in enumerate(first.batch)}
        axes |= {count + i: a for i, a in enumerate(free)}
        axes[None] = first.contract[0][side]
        found.append(axes)
        count += len(free)
    return found[0], found[1]


def _values_map(
    second: Dims, side: int, between: Between, values: ir.Value, keys: int
) -> tuple[Axes, tuple[int | None, ...]]:
    """Axes of the scores in v, and the meaning of the axes of the second product."""
    if between.axes[second.contract[0][side]] != keys:
        raise NoKernel("the softmax is not over the keys")
    columns = second.free(1 - side, len(shape_of(values)))
    if len(columns) != 1:
        raise NoKernel("several columns in a head's values")
    lead = [(between.axes[pair[side]], pair[1 - side]) for pair in second.batch]
    axes: Axes = {**dict(lead), keys: second.contract[0][1 - side], None: columns[0]}
    free = [between.axes[a] for a in second.free(side, len(between.axes))]
    tail: list[int | None] = [*free, None] if side == 0 else [None, *free]
    return axes, (*(a for a, _ in lead), *tail)


def _through(value: ir.Value, order: Sequence[int]) -> Operand:
    """The operand without transposes that the order undoes."""
    while maker(value) is not None:
        op = value.owner.operation
        if op.name != "stablehlo.transpose":
            break
        permutation = integers(op, "permutation")
        value, order = op.operands[0], [permutation[a] for a in order]
    return Operand(value, tuple(order))


def _unrepeated(k: Operand, v: Operand, place: int | None) -> tuple[Operand, Operand]:
    """Keys and values without repeated heads (axis `place` of the order), if both repeat alike."""
    if place is None:
        return k, v
    sources = [_repeated(x.value, x.order[place]) for x in (k, v)]
    if any(s is None for s in sources):
        return k, v
    found = [Operand(s, x.order) for s, x in zip(sources, (k, v), strict=True) if s is not None]
    return (found[0], found[1]) if found[0].sizes[place] == found[1].sizes[place] else (k, v)


def _repeated(value: ir.Value, axis: int) -> ir.Value | None:
    """The value that is repeated along an axis by elements: [.., n, ..] -> [.., n * r, ..]."""
    reshape = maker(value, "stablehlo.reshape")
    if reshape is None:
        return None
    wide = reshape.operation.operands[0]
    repeat = maker(wide, "stablehlo.broadcast_in_dim")
    if repeat is None:
        return None
    source, dims = repeat.operation.operands[0], integers(repeat, "broadcast_dimensions")
    shape, small = shape_of(wide), shape_of(source)
    kept = [a for a in range(len(shape)) if a != axis + 1]
    merged = [*shape[:axis], math.prod(shape[axis : axis + 2]), *shape[axis + 2 :]]
    same = list(dims) == kept and small == tuple(shape[a] for a in kept)
    return source if same and tuple(merged) == shape_of(value) else None
