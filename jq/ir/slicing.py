"""The slice of a value: all that a program computes of it before anything else comes in.

A slice holds the ops that depend on a value and on constants alone. Where the whole slice up to
some op leaves through a single value, that value is a function of the first one (a *cut*), which
can be evaluated in NumPy and recognised by what it computes, however it was written."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.base.deep import Steps, deep, every
from jq.ir.build import direction_of, integer, integers
from jq.ir.constants import MOVES, evaluate
from jq.ir.hoist import block_of
from jq.ir.pointwise import IN_NUMPY
from jq.ir.program import Program
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op, combiner, kind_of, maker

Array = np.ndarray
LIMIT = 64  # ops: more than any function that a kernel has


@dataclass(frozen=True)
class Cut:
    """`result` as a function of `source`, by way of `ops` (in program order)."""

    source: ir.Value
    result: ir.Value
    ops: tuple[Any, ...]
    constants: dict[Any, Array]

    def __call__(self, x: Array) -> Array:
        """The function in NumPy, float32 as the program has it."""
        known: dict[Any, Array] = {self.source: x, **self.constants}
        for op in self.ops:
            arrays = [known[v] for v in op.operands]
            with np.errstate(all="ignore"):
                known[op.results[0]] = _RULES[kind_of(op)](arrays, op.operation)
        return known[self.result]

    def of_elements(self) -> "Cut | None":
        """The same function for arrays of any shape; None where elements are not computed alike."""
        kinds = {kind_of(op) for op in self.ops}
        same = all(a.size and (a == a.flat[0]).all() for a in self.constants.values())
        if not same or kinds & _SHAPED:
            return None
        return replace(self, constants={v: a.flat[0] for v, a in self.constants.items()})


def cuts(program: Program, source: ir.Value) -> Iterator[Cut]:
    """Every function of `source`, from the smallest."""
    constants: dict[Any, Array] = {}
    inside: dict[Any, None] = {source: None}
    ops: list[Any] = []
    readers = _readers(source)  # of what is inside, still to come
    for op in _after(source):
        if not readers:
            return
        if op.operation not in readers:
            continue
        readers.remove(op.operation)
        if not _belongs(program, op, inside, constants):
            continue
        ops.append(op)
        inside[op.results[0]] = None
        readers |= _readers(op.results[0])
        if len(ops) > LIMIT:
            return
        members = {o.operation for o in ops}
        live = [v for v in inside if any(use.owner.operation not in members for use in v.uses)]
        if len(live) == 1 and live[0] == op.results[0]:
            yield Cut(source, live[0], tuple(ops), dict(constants))


def compute(program: Program, value: ir.Value) -> Array | None:
    """The array that weights and constants alone make of `value`; None when an input takes part."""
    near = [value]  # nearest first: an input is mostly close by, and the first operand a long chain
    for v in near:
        if (op := maker(v)) is None and program.weight_name(v) is None:
            return None
        if op is not None and len(near) < LIMIT:
            near += op.operands
    return _compute(program, value)


@deep
def _compute(program: Program, value: ir.Value) -> Steps[Array | None]:
    if (found := evaluate(program, value)) is not None or (op := maker(value)) is None:
        return found
    rule = _RULES.get(kind_of(op)) or _PLACED.get(kind_of(op))
    if rule is None or len(op.results) != 1:
        return None
    arrays = yield from every((program, v) for v in op.operands)
    if arrays is None:
        return None
    with np.errstate(all="ignore"):
        return rule(arrays, op.operation)


def between(program: Program, source: ir.Value, *others: ir.Value, result: ir.Value) -> Cut | None:
    """`result` as a function of `source` and constants alone, and of `others`, which are constants
    to come; None when it is not one."""
    inside: dict[Any, Any] = {}  # op -> the op, found backwards from the result
    constants: dict[Any, Array] = {}
    todo = [result]
    while todo:
        v = todo.pop()
        if v == source or v in others or v in constants:
            continue
        if (array := evaluate(program, v)) is not None:
            constants[v] = array
            continue
        op = maker(v)
        if op is None or kind_of(op) not in _RULES:
            return None
        if op.operation not in inside:
            inside[op.operation] = op
            todo.extend(op.operands)
        if len(inside) > LIMIT:
            return None
    if not inside:
        return None
    block = result.owner.operation.block  # the source may be of an outer one
    ops = [o for o in block.operations if o.operation in inside]
    return Cut(source, result, tuple(ops), constants) if len(ops) == len(inside) else None


def functions(program: Program, source: ir.Value, first: Op) -> Iterator[Cut]:
    """Functions of `source` that the op `first` takes part in and whose inner values nobody else
    reads, from the smallest; other ops may read `source`."""
    reached: dict[Any, None] = {first.results[0]: None}
    started = False
    for op in first.operation.block.operations:
        started = started or op.operation == first.operation
        follows = op.operation == first.operation or any(v in reached for v in op.operands)
        if not (started and follows and len(op.results) == 1):
            continue
        if (cut := between(program, source, result=op.results[0])) is None:
            continue
        reached[cut.result] = None
        if len(reached) > LIMIT:
            return
        members = {o.operation for o in cut.ops}
        inner = [o.results[0] for o in cut.ops if o.results[0] != cut.result]
        if all(use.owner.operation in members for v in inner for use in v.uses):
            yield cut


def _readers(value: ir.Value) -> set[Any]:
    return {use.owner.operation for use in value.uses}


def _after(source: ir.Value) -> Iterator[Any]:
    """Ops after the value in its block."""
    first = maker(source)
    seen = first is None
    for op in block_of(source).operations:
        if seen:
            yield op
        elif first and op.operation == first.operation:
            seen = True


def _belongs(
    program: Program, op: Op, inside: dict[Any, None], constants: dict[Any, Array]
) -> bool:
    if kind_of(op) not in _RULES or len(op.results) != 1:
        return False
    for v in op.operands:
        if v in inside or v in constants:
            continue
        if (array := evaluate(program, v)) is None:
            return False
        constants[v] = array
    return True


def _reduce(arrays: list[Array], op: Op) -> Array:
    how, axes = combiner(op), integers(op, "dimensions")
    if how == "add":
        return np.asarray(arrays[0].sum(axis=axes, dtype=arrays[0].dtype) + arrays[1])
    if how == "maximum":
        return np.maximum(arrays[0].max(axis=axes), arrays[1])
    return np.full(shape_of(op.results[0]), np.nan, arrays[0].dtype)  # equals no function we know


def _moved(kind: str, arrays: list[Array], op: Any) -> Array:
    return np.asarray(MOVES[kind](arrays[0], op, shape_of(op.results[0])))


def _iota(_: list[Array], op: Any) -> Array:
    shape = shape_of(op.results[0])
    places = np.indices(shape, sparse=True)[integer(op, "iota_dimension")]
    return np.broadcast_to(places.astype(dtype_of(op.results[0])), shape)


def _each(f: Any) -> Callable[[list[Array], Any], Array]:
    return lambda arrays, op: np.asarray(f(*arrays)).astype(dtype_of(op.results[0]), copy=False)


def one_by_one(f: Callable[[float], float]) -> Callable[[Array], Array]:
    """The function `np.vectorize` gives, in a fraction of its time."""

    def all_of(x: Array) -> Array:
        return np.fromiter(map(f, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)

    return all_of


_COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal}
_COMPARE |= {"GT": np.greater, "GE": np.greater_equal}
_FUNCTIONS: dict[str, Any] = {
    **{op: getattr(np, name) for op, name in IN_NUMPY.items()},
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select": np.where,
}
# What only `compute` knows has no place in a function of a value.
_PLACED = {"stablehlo.iota": _iota} | {k: partial(_moved, k) for k in MOVES}
_RULES: dict[str, Callable[[list[Array], Any], Array]] = {
    **{k: f for k, f in _PLACED.items() if k.endswith(("broadcast_in_dim", "convert", "reshape"))},
    **{f"stablehlo.{name}": _each(f) for name, f in _FUNCTIONS.items()},
    "chlo.erf": _each(one_by_one(math.erf)),
    "chlo.erfc": _each(one_by_one(math.erfc)),
    "stablehlo.compare": lambda arrays, op: _COMPARE[direction_of(op)](*arrays),
    "stablehlo.reduce": _reduce,
}
# All others take elements one by one.
_SHAPED = {f"stablehlo.{name}" for name in ("broadcast_in_dim", "reduce", "reshape")}
