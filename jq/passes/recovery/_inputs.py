"""Weights of the plan as matrices, and the moments of what they are multiplied by."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from jq.formats import Encoding
from jq.ir import Op, Program, integers, maker, shape_of
from jq.ir.ops import Dims, groups_of, rule_of
from jq.ir.ops.rules.convolution import Convolution
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import PassContext
from jq.planning.moments.collect import Moments, collect
from jq.planning.moments.inputs import Wanted
from jq.planning.operands import contractions, find_weight, op_name
from jq.planning.planner import plan
from jq.target.settings import FLOAT

T = TypeVar("T")
LARGEST = 16384  # inputs of a contraction: beyond, its moments take too much memory
MEMORY = 1 << 30  # bytes of moments that are held at once; beyond, the data are run again
MOST_GROUPS = 512  # beyond, a group has next to nothing to choose from


class NotApplicable(Exception):
    """Reason why a weight is left to plain rounding; the message goes to the user."""


@dataclass(frozen=True)
class Matrix:
    """A stored weight seen as [K, N]: its contracted axes first, in order.

    `order` permutes the stored axes, `contracted` of them are K; `groups` are equal parts of the
    columns, each multiplied by rows of its own."""

    name: str
    order: tuple[int, ...]
    contracted: int
    shape: tuple[int, ...]
    groups: int = 1

    @property
    def permuted(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.order)

    def of(self, stored: np.ndarray) -> np.ndarray:
        """[K, N] of an array of the weight's rank (the weight itself, or a grid of scales)."""
        moved = np.transpose(stored, self.order)
        return np.ascontiguousarray(moved.reshape(int(np.prod(moved.shape[: self.contracted])), -1))

    def back(self, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The inverse of `of`, to an array of `shape` in stored order."""
        moved = matrix.reshape([shape[a] for a in self.order])
        return np.ascontiguousarray(np.transpose(moved, np.argsort(self.order)))


@dataclass(frozen=True)
class Use:
    """One product that reads a weight; `ordered`: its result has the matrix's columns in order."""

    matrix: Matrix
    wanted: Wanted
    ordered: bool = True


def find_use(
    program: Program, op: Op, operand: int, encodings: Mapping[str, Encoding] = MappingProxyType({})
) -> Use:
    """The way in which a contraction reads the weight behind an operand, through transposes alone;
    the axes that its encoding has blocks along come first in K, so that blocks are rows in a row.

    Raises:
        NotApplicable: with the reason."""
    if op.operation.block != program.body:
        raise NotApplicable("it is read inside a loop or a branch")
    batch, pairs, groups = _axes(op, operand)
    value, axes = op.operands[operand], list(range(len(shape_of(op.operands[operand]))))
    while (name := program.weight_name(value)) is None:
        if maker(value, "stablehlo.transpose") is None:
            raise NotApplicable("it is read through more than a transpose")
        permutation = integers(value.owner, "permutation")
        pairs = [(permutation[a], b) for a, b in pairs]
        batch, axes = ([permutation[a] for a in own] for own in (batch, axes))
        value = value.owner.operands[0]
    shape = program.weights[name].shape
    enc = encodings.get(name)
    pairs.sort(key=lambda pair: (enc is None or enc.grid[pair[0]] == 1, *pair))
    inner = [a for a, _ in pairs]
    free = [a for a in range(len(shape)) if a not in (*inner, *batch)]
    matrix = Matrix(name, (*inner, *batch, *free), len(inner), shape, groups)
    theirs = [a for a in axes if a in free]
    return Use(matrix, Wanted(op_name(op), 1 - operand, tuple(b for _, b in pairs)), theirs == free)


def _axes(op: Op, operand: int) -> tuple[list[int], list[tuple[int, int]], int]:
    """Batch axes of the weight, its contracted axes with what `Wanted` calls them, and groups."""
    rule = rule_of(op)
    if isinstance(rule, DotGeneral):
        dims, shape = Dims.of(op), shape_of(op.operands[operand])
        batch = [pair[operand] for pair in dims.batch]
        pairs = [(pair[operand], pair[1 - operand]) for pair in dims.contract]
        return batch, pairs, math.prod(shape[a] for a in batch)
    if isinstance(rule, Convolution) and operand == 1 and not rule.decline(op):
        return [], [(a, a) for a in sorted(rule.roles(op)[1].contracted)], groups_of(op)
    kind = op.operation.name.removeprefix("stablehlo.")
    raise NotApplicable(f"{kind} is not a matrix product")


def uses_in(program: Program) -> list[Use]:
    """Every product with a weight that can be seen as a matrix."""
    uses = []
    for op, rule in contractions(program):
        for role in rule.roles(op):
            if find_weight(program, op.operands[role.index], role) is not None:
                with suppress(NotApplicable):
                    uses.append(find_use(program, op, role.index))
    return uses


def matrix_encoding(matrix: Matrix, enc: Encoding) -> Encoding:
    """The weight's encoding as one of [K, N]."""
    inner, free = matrix.order[: matrix.contracted], matrix.order[matrix.contracted :]
    if any(enc.grid[a] != enc.shape[a] for a in free):
        raise NotApplicable("several outputs share a scale")
    blocked = [a for a in inner if enc.grid[a] > 1]
    if blocked and blocked != [a for a in inner if enc.shape[a] > 1][:1]:
        raise NotApplicable("blocks along one of several axes")
    rows, columns = (math.prod(enc.shape[a] for a in axes) for axes in (inner, free))
    size = rows // enc.shape[blocked[0]] * enc.block[blocked[0]] if blocked else 0
    if rows > LARGEST:
        raise NotApplicable(f"{rows} inputs, more than {LARGEST}")
    if matrix.groups > MOST_GROUPS:
        raise NotApplicable(f"{matrix.groups} groups, more than {MOST_GROUPS}")
    return enc.with_shape((rows, columns), (size, 1))


def planned_weights(program: Program, cx: PassContext) -> Mapping[str, Encoding]:
    """The encodings that weights will be stored in; also for a pass in front of planning, as far as
    they do not depend on ranges of activations."""
    if cx.plan.ops:
        return cx.plan.weights
    s = cx.settings
    floating = s.activations.model_copy(update={"format": FLOAT})
    weights_alone = s.model_copy(update={"activations": floating})
    return plan(program, weights_alone, cx.target, cx.rules, None, cx.explicit).weights


def uses_of_weights(program: Program, cx: PassContext) -> dict[str, list[Use] | str]:
    """Products that read each weight of the plan, by its name, or why it cannot be solved for."""
    uses: dict[str, list[Use] | str] = {}
    plans = {op.name: op for op in cx.plan.ops}
    for op, _ in contractions(program):
        for index, p in plans[op_name(op)].operands.items() if op_name(op) in plans else ():
            if p.weight is None:
                continue
            before = uses.get(p.weight, [])
            try:
                use = find_use(program, op, index, cx.plan.weights)
                if isinstance(before, list):
                    if before and before[0].matrix != use.matrix:
                        raise NotApplicable("it is used in two ways")
                    uses[p.weight] = [*before, use]
            except NotApplicable as reason:
                uses[p.weight] = str(reason)
    return uses


def moments_of_weights(
    program: Program,
    cx: PassContext,
    uses: Mapping[str, list[Use] | str],
    power: float,
    *,
    full: bool = True,
    shared: float = 0.0,
    samples: Sequence[int] | None = None,
) -> dict[str, Moments]:
    """Moments by weight, summed over the products that read it; see `collect`."""
    wanted = [u.wanted for reads in uses.values() if not isinstance(reads, str) for u in reads]
    options: dict[str, Any] = {"power": power, "full": full, "shared": shared, "samples": samples}

    def collected() -> Mapping[str, Moments]:
        # Gains of all products: what is found does not depend on which of them the plan rounds.
        others = [use.wanted for use in uses_in(program)]
        return collect(program, cx.data or (), wanted, gains=cx.gains, others=others, **options)

    known, asked = cx.moments, f"{wanted} {options}"
    seen = known.of(program, asked, cx.gains, collected) if known is not None else collected()
    out: dict[str, Moments] = {}
    for name, reads in uses.items():
        for use in reads if not isinstance(reads, str) else ():
            m = seen[use.wanted.name]
            out[name] = out[name].add(m) if name in out else m
    return out


def spread(count: int, most: int) -> list[int]:
    """At most so many of 0, 1, ..., count - 1, evenly: those of half as many are among them."""
    chosen = min(count, most)
    return [i * count // chosen for i in range(chosen)]


def held_out(count: int) -> list[int]:
    """Those of so many batches that errors are measured on where there are minutes, and no step
    sees: an eighth, 32 at most."""
    return spread(count, min(32, max(1, count // 8)))


def in_parts(sizes: Mapping[T, int]) -> list[list[T]]:
    """The keys in as many parts as their moments, of so many bytes, need to fit in `MEMORY`."""
    parts: list[list[T]] = []
    free = 0
    for key, size in sizes.items():
        if not parts or size > free:
            parts.append([])
            free = MEMORY
        parts[-1].append(key)
        free -= size
    return parts
