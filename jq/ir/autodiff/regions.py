"""A program cut into regions: runs of ops that few values pass between, as JAX functions.

In a network of layers these are the layers, or what lies between two residual sums."""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from jq.ir import Op, Program, dtype_of, ir, maker, shape_of
from jq.ir.autodiff.evaluate import run_ops
from jq.ir.values import reads

NARROW = 1.2  # times the least that passes a place near by is little
WINDOW = 6  # weights in front and behind that are near
WEIGHT = 5 * 4  # bytes that learning takes for an element of a weight: itself, gradient, moments


@dataclass(frozen=True)
class Region:
    """Attributes:
    ops: in order, with those in front that give it constants and values of weights alone.
    inputs, outputs: values that depend on the program's inputs.
    weights: names of the weights to be learned that it reads.
    bytes: of all its results and of what learning these weights takes."""

    program: Program
    ops: tuple[Op, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    weights: tuple[str, ...]
    bytes: int

    @property
    def reads(self) -> set[str]:
        """The names of all weights that it reads."""
        read = {v for op in self.ops for v in reads(op)}
        return {name for name in self.program.weights if self.program.weight(name) in read}

    def __call__(self, weights: Mapping[str, Any], inputs: Sequence[Any]) -> list[Any]:
        """The outputs, from arrays of all weights of the program by name."""
        known: dict[Any, Any] = dict(zip(self.inputs, inputs, strict=True))
        known |= {self.program.weight(name): array for name, array in weights.items()}
        run_ops(self.program, self.ops, known)
        return [known[value] for value in self.outputs]


def regions(program: Program, learned: Iterable[str], most: int) -> list[Region]:
    """The whole program, cut wherever little passes between two weights that are learned.

    Regions have `most` bytes if there are places for that; one that none divides may be larger."""
    return _Cuts(program, set(learned), most).regions()


def whole(program: Program, learned: Iterable[str]) -> Region:
    """All of the program, its inputs in their order."""
    cuts = _Cuts(program, set(learned), 0)
    inputs = tuple(program.body.arguments)[: len(program.inputs)]
    return replace(cuts.region(0, len(cuts.ops)), inputs=inputs)


def behind(
    program: Program, learned: Iterable[str], values: Collection[ir.Value]
) -> tuple[list[Region], dict[ir.Value, int], int]:
    """The program, cut behind each of these values as far as they vary, the number of the region
    that follows each, and the most bytes that pass a cut."""
    cuts = _Cuts(program, set(learned), 0)
    made = {v: i + 1 for i, op in enumerate(cuts.ops) for v in op.operation.results if v in values}
    made = {v: made.get(v, 0) for v in values if v in cuts.variable}
    places = sorted({0, *made.values()})
    found = [cuts.region(*ends) for ends in pairwise([*places, len(cuts.ops)])]
    most = max(cuts.live[i] for i in places)
    return found, {v: places.index(place) for v, place in made.items()}, most


class _Cuts:
    def __init__(self, program: Program, learned: set[str], most: int) -> None:
        self.program, self.most = program, most
        self.learned = {program.weight(name): name for name in learned}
        *self.ops, self.end = list(program.body.operations)
        self.variable = set(list(program.body.arguments)[: len(program.inputs)])
        self.reads = [list(dict.fromkeys(reads(op))) for op in self.ops]
        self.last: dict[Any, int] = dict.fromkeys(self.end.operation.operands, len(self.ops))
        for i, op in enumerate(self.ops):
            if any(v in self.variable for v in self.reads[i]):
                self.variable.update(op.operation.results)
        for i in reversed(range(len(self.ops))):
            for value in self.reads[i]:
                self.last.setdefault(value, i)
        self.live, self.passing = self._live(_bytes), self._live(_told)
        self.read_by, sizes = self._weights_by_op(), [0]
        for op, names in zip(self.ops, self.read_by, strict=True):
            results = sum(_bytes(v) for v in op.operation.results if v in self.variable)
            learning = sum(WEIGHT * program.weights[n].size for n in names)
            sizes.append(sizes[-1] + results + learning)
        self.sizes = sizes

    def _live(self, size: Callable[[ir.Value], int]) -> list[int]:
        """The sizes of computed values that pass each place, that in front of op i, in all."""
        change = [0] * (len(self.ops) + 2)
        for i, op in enumerate(self.ops):
            for value in op.operation.results:
                if value in self.variable and (last := self.last.get(value)) is not None:
                    change[i + 1] += size(value)
                    change[last + 1] -= size(value)
        return list(accumulate(change[:-1]))

    def regions(self) -> list[Region]:
        found, start = [], 0
        for here, after in pairwise([*self._places(), len(self.ops)]):
            if self._weights(start, here) and self._weights(here, after):
                found.append(self.region(start, here))
                start = here
        return [*found, self.region(start, len(self.ops))]

    def _places(self) -> list[int]:
        """The places that least passes, as many as are needed for regions of `most` bytes."""
        own = [i for i, names in enumerate(self.read_by) if names]
        if not own:
            return []
        gaps = [range(a + 1, b + 1) for a, b in pairwise(own)]
        least = [min(self.passing[i] for i in gap) for gap in gaps]
        near = [NARROW * min(least[max(0, g - WINDOW) : g + WINDOW + 1]) for g in range(len(gaps))]
        inner = {i: near[g] for g, gap in enumerate(gaps) for i in gap}
        levels = [0, *sorted({self.passing[i] for i in inner})]

        def places(level: int) -> list[int]:
            return [i for i in inner if self.passing[i] <= max(inner[i], levels[level])]

        def fits(level: int) -> bool:
            cuts = [0, *places(level), len(self.ops)]
            return max(self._bytes(a, b) for a, b in pairwise(cuts)) <= self.most

        best = bisect_left(range(len(levels)), True, key=fits)
        return places(min(best, len(levels) - 1))

    def _bytes(self, start: int, stop: int) -> int:
        return self.sizes[stop] - self.sizes[start]

    def _weights_by_op(self) -> list[tuple[str, ...]]:
        """The weights to be learned that each op with varying results reads, also by way of ops
        whose results do not vary."""
        behind: dict[Any, tuple[str, ...]] = {v: (n,) for v, n in self.learned.items()}
        found: list[tuple[str, ...]] = []
        for i, op in enumerate(self.ops):
            names = tuple(dict.fromkeys(n for v in self.reads[i] for n in behind.get(v, ())))
            found.append(names if self._varies(i) else ())
            if names and not self._varies(i):
                behind |= dict.fromkeys(op.operation.results, names)
        return found

    def _weights(self, start: int, stop: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for names in self.read_by[start:stop] for n in names))

    def _with_constants(self, start: int, stop: int) -> list[Op]:
        """These ops, and those in front that compute what they read and no input changes."""
        chosen = set(range(start, stop))
        wanted = {v for i in chosen for v in self.reads[i] if v not in self.variable}
        for i in reversed(range(start)):
            if wanted.intersection(self.ops[i].operation.results):
                chosen.add(i)
                wanted.update(self.reads[i])
        fixed = [i for i in sorted(chosen) if i >= start or not self._varies(i)]
        return [self.ops[i] for i in fixed]

    def _varies(self, i: int) -> bool:
        return any(v in self.variable for v in self.ops[i].operation.results)

    def region(self, start: int, stop: int) -> Region:
        inside = {v for op in self.ops[start:stop] for v in op.operation.results}
        read = dict.fromkeys(v for i in range(start, stop) for v in self.reads[i])
        inputs = [v for v in read if v in self.variable and v not in inside]
        outputs = [v for v in inside if v in self.variable and self.last.get(v, -1) >= stop]
        if stop == len(self.ops):
            outputs = [v for v in self.end.operation.operands if v in inside]
        order = {v: i for i, op in enumerate(self.ops) for v in op.operation.results}
        outputs = sorted(dict.fromkeys(outputs), key=order.__getitem__)
        return Region(
            self.program,
            tuple(self._with_constants(start, stop)),
            tuple(inputs),
            tuple(outputs),
            self._weights(start, stop),
            self._bytes(start, stop),
        )


def _bytes(value: ir.Value) -> int:
    return math.prod(shape_of(value)) * max(dtype_of(value).itemsize, 1)


def _told(value: ir.Value) -> int:
    """Bytes of what a value says: where it repeats another one, such as a mask, those of that."""
    repeated = maker(value, "stablehlo.broadcast_in_dim")
    return _bytes(repeated.operands[0] if repeated else value)
