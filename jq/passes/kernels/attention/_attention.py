"""The middle of an attention, between its two products: scale, mask, softmax over the last axis.

Axes of the scores, and of all that is made of them, are known by their place in the first product's
result: transposes in between change the order alone."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from jq.base.deep import Steps, deep
from jq.base.errors import InternalError
from jq.formats.blocks import full
from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir, kind_of, maker, only_user, shape_of
from jq.ir.build import integers
from jq.ir.slicing import Cut, cuts
from jq.passes.kernels._kernel import KernelDecisions, NoKernel

A = TypeVar("A", bound="Match")

HIDDEN = -1e9  # a score that is replaced by this or less has probability 0
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Mask:
    """Added to the scores; or, with `fill`, a predicate of the scores that are kept. `axes` are
    those of the scores, in the value's order."""

    value: ir.Value
    axes: tuple[int, ...]
    fill: float | None = None

    @property
    def varies(self) -> set[int]:
        """Axes along which it is not plainly repeated."""
        return {self.axes[a] for a in _varies(self.value)}

    def part(self, repeated: Sequence[int], order: Sequence[int]) -> ir.Value:
        """Numbers to add: one of all along the axes `repeated`, and axes in the given order."""
        shape = shape_of(self.value)
        limit = [1 if a in repeated else n for a, n in zip(self.axes, shape, strict=True)]
        value = OPS.slice(self.value, [0] * len(shape), limit)
        value = OPS.transpose(value, [self.axes.index(a) for a in order])
        if self.fill is None:
            return OPS.convert(value, np.float32)
        hidden = self.fill if math.isinf(self.fill) else LOWEST
        ends = [full(OPS, x, shape_of(value), np.float32) for x in (0.0, hidden)]
        return OPS.select(value, *ends)


@dataclass(frozen=True)
class Between:
    """`softmax(scale * scores + mask)`, by way of `ops` in program order. `axes` are those of the
    scores, in the result's order; the last one counts keys."""

    scale: float
    mask: Mask | None
    result: ir.Value
    axes: tuple[int, ...]
    ops: tuple[Any, ...]

    def then(self, op: Op) -> "Between":
        """The middle with one more op: a transpose, or one that keeps the axes in place."""
        axes = self.axes
        if op.operation.name == "stablehlo.transpose":
            axes = tuple(axes[a] for a in integers(op, "permutation"))
        return replace(self, result=op.operation.results[0], axes=axes, ops=(*self.ops, op))


def find_softmax(program: Program, scores: ir.Value) -> Between | None:
    """The steps from the scores to their softmax, if it follows them."""
    if not _is_float(scores) or len(shape_of(scores)) < 3 or 0 in shape_of(scores):
        return None
    found = Between(1.0, None, scores, tuple(range(len(shape_of(scores)))), ())
    while (op := only_user(found.result)) is not None:
        step = _moved(found, op) or _scaled(program, found, op) or _masked(program, found, op)
        if step is None:
            break
        found = step
    softmax = next(_softmaxes(program, found.result), None)
    if softmax is None:
        return None
    found = replace(found, result=softmax.result, ops=(*found.ops, *softmax.ops))
    while (op := only_user(found.result)) is not None and (step := _moved(found, op)):
        found = step
    return found


@dataclass(frozen=True)
class Match:
    """A match: two products, of these names, with a softmax between them. `last` is the second
    product, and `side` the operand of it that the probabilities are."""

    names: tuple[str, str]
    between: Between
    last: Any
    side: int


def to_kernels(
    program: Program, ops: Sequence[Any], find: Callable[[Any], A | None], lower: Callable[[A], str]
) -> bool:
    """Lowers what is found at products; both are told its kernel's name, or why there is none."""
    keys = [hash(op.operation) for op in ops]  # before any is erased
    gone: set[int] = set()
    decided = KernelDecisions()
    for op, key in zip(ops, keys, strict=True):
        found = None if key in gone else find(op)
        if found is None:
            continue
        names, second = found.names, hash(found.last.operation)
        try:
            kernel = lower(found)
        except (NoKernel, InternalError) as reason:
            decided.none(str(reason), *names)
            continue
        gone.add(second)
        decided.kernel(kernel, *names)
    return decided.write(program)


def _is_float(value: ir.Value) -> bool:
    return dtype_of(value).name in ("float32", "bfloat16", "float16")


def _moved(found: Between, op: Op) -> Between | None:
    """A transpose, or a conversion from one float type to another."""
    name = op.operation.name
    converts = name == "stablehlo.convert" and _is_float(op.operation.results[0])
    return found.then(op) if converts or name == "stablehlo.transpose" else None


def _scaled(program: Program, found: Between, op: Op) -> Between | None:
    """A multiplication or division by one number."""
    divides = op.operation.name == "stablehlo.divide"
    if found.mask or not (divides or op.operation.name == "stablehlo.multiply"):
        return None
    left, right = op.operation.operands
    if divides and left != found.result:
        return None
    array = evaluate(program, right if left == found.result else left)
    if array is None or not (array == array.flat[0]).all():
        return None
    number = float(array.flat[0])
    scale = found.scale * (number if not divides else 1.0 / number if number else math.nan)
    return replace(found.then(op), scale=scale) if math.isfinite(scale) else None


def _masked(program: Program, found: Between, op: Op) -> Between | None:
    """Something added, or a selection between the scores and a very small number."""
    if found.mask:
        return None
    operands = list(op.operation.operands)
    if op.operation.name == "stablehlo.add" and operands[0] != operands[1]:
        value = operands[1] if operands[0] == found.result else operands[0]
        return replace(found.then(op), mask=Mask(value, found.axes))
    if op.operation.name != "stablehlo.select" or operands[1] != found.result:
        return None
    fill = evaluate(program, operands[2])
    if shape_of(operands[0]) != shape_of(found.result) or fill is None:
        return None
    number = float(fill.flat[0])
    if number > HIDDEN or not (fill == fill.flat[0]).all():
        return None
    return replace(found.then(op), mask=Mask(operands[0], found.axes, number))


def _softmaxes(program: Program, value: ir.Value) -> Iterator[Cut]:
    """Cuts behind `value` that are its softmax over the last axis."""
    shape = shape_of(value)
    if dtype_of(value) != np.float32:
        return
    for cut in cuts(program, value):
        sums = any(kind_of(op) == "stablehlo.reduce" for op in cut.ops)
        if not sums or shape_of(cut.result) != shape:
            continue
        if all(_same(cut(x), y, usual) for x, y, usual in _samples(shape)):
            yield cut


def _same(found: np.ndarray, y: np.ndarray, usual: np.ndarray) -> bool:
    """A softmax that subtracts no maximum is NaN where scores are huge."""
    near = np.isclose(found, y, rtol=1e-5, atol=1e-7, equal_nan=True)
    return bool((near | (np.isnan(found) & ~usual)).all())


@lru_cache(maxsize=1)
def _samples(shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Scores, their softmax, and which rows have scores of the usual size. Others are huge, far
    below zero, or hidden as a whole: there a limit on the scores shows, and is no softmax. Nor is
    `exp(x - (max + log(sum)))` one: the logarithm is lost beside the lowest float."""
    usual = np.random.default_rng(0).uniform(-30, 30, shape).astype(np.float32)
    huge = usual * np.float32(1e37)
    hidden = (np.full_like(usual, fill) for fill in (-np.inf, LOWEST))
    kinds = (usual, huge, -np.abs(huge), *hidden)
    rows = np.arange(math.prod(shape[:-1])).reshape(*shape[:-1], 1)
    found = []
    for first in range(len(kinds) if rows.size < len(kinds) else 1):
        kind = (rows + first) % len(kinds)
        x = np.choose(kind, kinds)
        with np.errstate(invalid="ignore", over="ignore"):
            y = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64))
            found.append((x, y / y.sum(-1, keepdims=True), kind == 0))
    return found


@deep
def _varies(value: ir.Value) -> Steps[set[int]]:
    """Axes along which a value is not plainly repeated."""
    shape, owner = shape_of(value), maker(value)
    if owner is None:
        return {a for a, n in enumerate(shape) if n > 1}
    op = owner.operation
    if op.name == "stablehlo.broadcast_in_dim":
        source, dims = op.operands[0], integers(op, "broadcast_dimensions")
        varies = yield (source,)
        return {dims[a] for a in varies if shape_of(source)[a] > 1}
    if op.name in _ELEMENTWISE:
        found: set[int] = set()
        for operand in op.operands:
            found |= yield (operand,)
        return found
    return {a for a, n in enumerate(shape) if n > 1}


# Ops of masks: their results vary where an operand does.
_ELEMENTWISE = {f"stablehlo.{name}" for name in ("and", "or", "not", "convert", "add", "multiply")}
