"""Elements and parts at computed places: lookups of rows, by numbers of int32."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.windows import Windows
from jq.device.network import Node, Tensor
from jq.ir import stablehlo
from jq.ir.affine import compact
from jq.ir.build import integers

_FOLDED: dict[str, Any] = {"integer_add": np.add, "integer_multiply": np.multiply}
_FOLDED |= {"maximum": np.maximum, "minimum": np.minimum}
MOST = 32  # parts that are written one after the other


class Lookups(Windows):
    """Adds lookups, and reads and writes of parts that begin at computed places."""

    # Numbers

    def _known(self, value: int | np.ndarray, rank: int = 1) -> Tensor:
        """A constant of int32: an array as it is, a number with one element along each axis."""
        data = np.array(value, np.int32).reshape(np.shape(value) or [1] * rank)
        return Tensor(self.fresh(self.node.output, ()).name, data.shape, "int32", data=data)

    def _of(self, kind: str, a: Tensor, b: Tensor | int | np.ndarray, to: str = "int32") -> Tensor:
        """A step on two tensors, which broadcast; of constants, a constant."""
        b = b if isinstance(b, Tensor) else self._known(b, len(a.shape))
        if kind in _FOLDED and a.data is not None and b.data is not None:
            return self._known(_FOLDED[kind](a.data, b.data))
        name, shape = self.fresh(self.node.output, ()).name, np.broadcast_shapes(a.shape, b.shape)
        return self.put(kind, [a, b], Tensor(name, shape, to))

    def _clamped(self, at: Tensor, most: int) -> Tensor:
        return self._of("minimum", self._of("maximum", at, 0), most)

    def _index(self, at: Tensor, shape: Sequence[int]) -> Tensor:
        """An index as int32, in another shape."""
        at = self.reshaped(at, shape)
        if at.data is not None:
            return self._known(at.data)
        made = Tensor(self.fresh(at, ()).name, at.shape, "int32")
        return at if at.dtype == "int32" else self.put("convert", [at], made)

    def _components(self, index: Tensor, vector: int, more: int) -> tuple[list[int], list[Tensor]]:
        """The shape of an index without its axis of vectors, and its number for each axis of the
        tensor, with `more` axes behind."""
        if vector == len(index.shape):
            index = self.reshaped(index, [*index.shape, 1])
        batch = [n for a, n in enumerate(index.shape) if a != vector]
        parts = (self.cut(index, vector, i, i + 1) for i in range(index.shape[vector]))
        return batch, [self._index(part, [*batch, *[1] * more]) for part in parts]

    def _clamp(self, node: Node) -> None:
        ones = [1] * len(node.output.shape)
        low, x, high = (self.reshaped(t, t.shape or ones) for t in node.inputs)
        x = self.put("maximum", [x, low], self.fresh(node.output, x.shape))
        self.put("minimum", [x, high], node.output)

    def _integer_divide(self, node: Node) -> None:
        """The quotient, cut off toward 0, or the remainder; by constants all forms agree on."""
        x, by = node.inputs
        if by.data is None or np.isin(by.values, (0, -1)).any():
            what = "a division by a number that is computed, or by 0 or -1, has no form here"
            raise UserError(what, op=node.name, hint="divide by another constant")
        found = self._of("integer_divide", x, by)
        if node.kind == "integer_remainder":
            found = self._of("integer_subtract", x, self._of("integer_multiply", found, by))
        self.named(found)

    _integer_remainder = _integer_divide

    def _integer_sign(self, node: Node) -> None:
        self.named(self._of("minimum", self._of("maximum", node.inputs[0], -1), 1))

    def _integer_negate(self, node: Node) -> None:
        self.named(self._of("integer_multiply", node.inputs[0], -1))

    def _integer_abs(self, node: Node) -> None:
        (x,) = node.inputs
        self.named(self._of("maximum", x, self._of("integer_multiply", x, -1)))

    def _integer_shift_left(self, node: Node) -> None:
        self.named(self._of("integer_multiply", node.inputs[0], self._power(node)))

    def _integer_shift_right_arithmetic(self, node: Node) -> None:
        """The quotient by a power of two, rounded down."""
        x, by = node.inputs[0], self._power(node)
        found = self._of("integer_divide", x, by)
        rest = self._of("integer_subtract", x, self._of("integer_multiply", found, by))
        below = self._of("maximum", self._of("minimum", rest, 0), -1)
        self.named(self._of("integer_add", found, below))

    def _power(self, node: Node) -> Tensor:
        """The power of two by which a node shifts."""
        by = node.inputs[1].data
        if by is None or not np.isin(by, range(31)).all():
            raise UserError("a shift by no constant up to 30 has no form here", op=node.name)
        return self._known(1 << compact(by))

    # Lookups

    def _looked_up(self, x: Tensor, places: Mapping[int, Tensor]) -> Tensor:
        """The elements of `x` at these places within it along some axes, in one lookup of rows: the
        axes of the places come first, then those of `x` that have none."""
        axes = sorted(places, key=lambda a: places[a].data is None)  # sums of constants are known
        rows = self.transposed(x, [*axes, *(a for a in range(len(x.shape)) if a not in axes)])
        rest, at = rows.shape[len(axes) :], places[axes[0]]
        for axis in axes[1:]:
            at = self._of("integer_multiply", at, x.shape[axis])
            at = self._of("integer_add", at, places[axis])
        rows = self.reshaped(rows, (math.prod(x.shape[a] for a in axes), *rest))
        return self.put("gather_rows", [rows, at], self.fresh(rows, (*at.shape, *rest)))

    def _along(self, x: Tensor, axis: int, at: Tensor) -> Tensor:
        """The elements of `x` at these places along one axis."""
        made = self._looked_up(x, {axis: at})
        return self.transposed(made, [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))])

    def _gather(self, node: Node) -> None:
        """Parts of the tensor; along an axis that the index has as well, each of its own."""
        x, index = node.inputs
        d = stablehlo.GatherDimensionNumbers(node.attributes["dimension_numbers"])
        sizes = list(integers(node, "slice_sizes"))
        alike, offsets = list(d.operand_batching_dims), list(d.offset_dims)
        kept = [a for a in range(len(sizes)) if a not in (*d.collapsed_slice_dims, *alike)]
        inner = [a for a in d.start_index_map if a in kept]
        batch, parts = self._components(index, d.index_vector_dim, len(inner))
        places, rank = dict[int, Tensor](), len(batch) + len(inner)
        for axis, at in zip(d.start_index_map, parts, strict=True):
            places[axis] = at = self._clamped(at, x.shape[axis] - sizes[axis])
            if axis in inner:
                steps = _line(sizes[axis], len(batch) + inner.index(axis), rank)
                places[axis] = self._of("integer_add", at, steps)
        for axis, a in zip(alike, d.start_indices_batching_dims, strict=True):
            a -= d.index_vector_dim < a
            places[axis] = self._known(_line(batch[a], a, rank))
        size = [n if a in places else sizes[a] for a, n in enumerate(x.shape)]
        made = self._looked_up(self.part(x, [0] * len(size), size), places)
        axes = [a for a in range(len(node.output.shape)) if a not in offsets]
        axes += [offsets[kept.index(a)] for a in inner]
        axes += [offset for offset, a in zip(offsets, kept, strict=True) if a not in inner]
        self.in_order(made, axes)

    # Parts

    def _dynamic_slice(self, node: Node) -> None:
        x, *starts = node.inputs
        for axis, start in enumerate(starts):
            x = self._read(x, axis, start, node.output.shape[axis])
        self.named(x)

    def _dynamic_update_slice(self, node: Node) -> None:
        x, new, *starts = node.inputs
        self.named(self._updated(x, new, starts))

    def _scatter(self, node: Node) -> None:
        """Each new part, one after the other; one that is not all inside is left out."""
        (x, index, new), rank = node.inputs, len(node.output.shape)
        d = stablehlo.ScatterDimensionNumbers(node.attributes["scatter_dimension_numbers"])
        windows, alike = list(d.update_window_dims), list(d.input_batching_dims)
        kept = [a for a in range(rank) if a not in (*d.inserted_window_dims, *alike)]
        size = [new.shape[windows[kept.index(a)]] if a in kept else 1 for a in range(rank)]
        batch, parts = self._components(index, d.index_vector_dim, 0)
        if (count := math.prod(batch)) > MOST:
            hint = f"write at most {MOST}, or choose between tensors with jnp.where"
            raise UserError(f"writing {count} parts has no form here", op=node.name, hint=hint)
        starts = dict(zip(d.scattered_dims_to_operand_dims, parts, strict=True))
        for axis, a in zip(alike, d.scatter_indices_batching_dims, strict=True):
            a -= d.index_vector_dim < a
            starts[axis] = self._known(np.broadcast_to(_line(batch[a], a, len(batch)), batch))
        others = [a for a in range(len(new.shape)) if a not in windows]
        new = self.reshaped(self.transposed(new, [*others, *windows]), [count, *size])
        starts = {axis: self.reshaped(at, [count]) for axis, at in starts.items()}
        for i in range(count):
            part = self.reshaped(self.cut(new, 0, i, i + 1), size)
            firsts = {axis: self.cut(at, 0, i, i + 1) for axis, at in starts.items()}
            places = [firsts.get(a) or self._known(0) for a in range(rank)]
            x = self._updated(x, part, places, whole=True)
        self.named(x)

    def _updated(
        self, x: Tensor, new: Tensor, starts: Sequence[Tensor], whole: bool = False
    ) -> Tensor:
        """A tensor with a new part, which is moved into it, or left out if not `whole` inside."""
        old = [x]
        for axis, start in enumerate(starts):
            old.append(self._read(old[-1], axis, start, new.shape[axis]))
        for axis, start in reversed([*enumerate(starts)]):
            new = self._written(old[axis], new, axis, start, whole)
        return new

    def _read(self, x: Tensor, axis: int, start: Tensor, size: int) -> Tensor:
        """A part along one axis, which is moved into the tensor."""
        room = x.shape[axis] - size
        if start.data is not None or not room:
            first = 0 if start.data is None else min(max(start.values.item(), 0), room)
            return self.cut(x, axis, first, first + size)
        at = self._clamped(self._index(start, [1]), room)
        return self._along(x, axis, self._of("integer_add", at, np.arange(size)))

    def _written(self, x: Tensor, new: Tensor, axis: int, start: Tensor, whole: bool) -> Tensor:
        """A new part along one axis: elements of the tensor and of the part behind it, looked up
        in their new order."""
        n, size = x.shape[axis], new.shape[axis]
        if start.data is not None:
            first = min(max(start.values.item(), 0), n - size)
            if whole and first != start.values.item():
                return x
            before, after = self.cut(x, axis, 0, first), self.cut(x, axis, first + size, n)
            return self.joined([before, new, after], axis)
        if n == size and not whole:
            return new
        at, each = self._index(start, [1]), self._known(np.arange(n))
        inside = self._clamped(at, n - size)
        ahead = self._of("integer_subtract", each, at if whole else inside)
        chosen = self._of("equal", ahead, self._clamped(ahead, size - 1), "bool")
        if whole and size > 1:
            chosen = self._of("logical_and", chosen, self._of("equal", at, inside, "bool"), "bool")
        behind = self._of("integer_add", ahead, n)
        at = self.put("select", [chosen, behind, each], self.fresh(behind, (n,)))
        return self._along(self.joined([x, new], axis), axis, at)


def _line(n: int, axis: int, rank: int) -> np.ndarray:
    """0, 1, ... along one axis."""
    return np.arange(n).reshape([n if a == axis else 1 for a in range(rank)])
