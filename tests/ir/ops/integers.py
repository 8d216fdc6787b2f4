"""Contractions on codes against NumPy: every integer of the program, on XLA and on IREE.

A `Case` is one contraction with its operands and settings; `check` puts many of them into one
module, quantizes it, makes the accumulators and codes results of the program, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.ir import Program, TensorSpec, at, dtype_of, func, ir, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext, run_all
from jq.passes.pipeline import load_pipeline, make_plan, rewrite
from jq.passes.prepare.split_upsampling import SplitUpsampling
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.decisions import OpPlan, QuantPlan, TensorPlan
from jq.target.rules import Rule
from jq.target.target import Device, Target
from tests.support.texts import load, run_iree

INTEGERS = ("int16", "int8", "int4", "int2")
Contract = Callable[[np.ndarray, np.ndarray], np.ndarray]
TARGET = Target(
    name="test", device=Device(products=tuple(f"{a} x {b}" for a in INTEGERS for b in INTEGERS))
)


@dataclass(frozen=True)
class Case:
    """One contraction.

    Attributes:
        op: the op's text without types; LHS and RHS stand for the operands, ATTRS for its name.
        shapes: of both operands and of the result.
        weight: which operand is the weight; None for a product of two activations.
        override: settings of this op alone.
        reference: the contraction of two int64 arrays in NumPy.
        scales: product of the scales that meet in each element of the result, from one scale
            for each element of the operands, constant along contracted axes.
        contracted: pairs of axes that blocks may run along.
    """

    op: str
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    weight: int | None
    override: dict[str, Any]
    reference: Contract
    scales: Contract
    contracted: tuple[tuple[int, int], ...] = ()

    def data(self, index: int) -> list[np.ndarray]:
        """Operands whose rows differ in size, with rows of zeros among them."""
        rng = np.random.default_rng(index)
        arrays = []
        for shape in self.shapes[:2]:
            rows = rng.choice([0, 0.1, 1, 30], (*shape[:1], *[1] * len(shape[1:])))
            x = rng.standard_normal(shape) * rows + rng.choice([0.0, 2.0])
            arrays.append(x.astype(np.float32))
        return arrays


def tensor(shape: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def build(cases: Sequence[Case]) -> tuple[Program, list[np.ndarray], list[list[np.ndarray]]]:
    """One float program of all cases, its inputs, and each case's operands."""
    args, weights, body, names, data = [], {}, [], [], []
    inputs: list[np.ndarray] = []
    for i, case in enumerate(cases):
        operands = case.data(i)
        data.append(operands)
        types = [tensor(s) for s in case.shapes]
        for side, array in enumerate(operands):
            if side == case.weight:
                weights[f"w{i}"] = array
                continue
            args.append(f"%x{i}_{side}: {types[side]}")
            inputs.append(array)
        refs = [f"%w{i}" if side == case.weight else f"%x{i}_{side}" for side in (0, 1)]
        op = case.op.replace("ATTRS", f'jq.name = "case{i}"')
        op = op.replace("LHS", refs[0]).replace("RHS", refs[1])
        body.append(f"%y{i} = {op} : ({types[0]}, {types[1]}) -> {types[2]}")
        names.append((f"%y{i}", types[2]))
    args += [
        f'%w{i}: {tensor(a.shape)} {{jq.weight = "w{i}"}}'
        for i, a in ((int(k[1:]), v) for k, v in weights.items())
    ]
    results = ", ".join(n for n, _ in names)
    kinds = ", ".join(t for _, t in names)
    text = f"({', '.join(args)}) -> ({kinds}) {{\n" + "\n".join(body)
    return load(f"{text}\nreturn {results} : {kinds}\n}}", weights), inputs, data


def check(cases: Sequence[Case], *, iree: bool) -> None:
    """Quantizes all cases in one module and compares every integer and result."""
    program, inputs, data = build(cases)
    rules = tuple(
        Rule(pattern=f"case{i}", override={"activation_products": "int8", **case.override})
        for i, case in enumerate(cases)
    )
    pipeline = load_pipeline("int8-dynamic", rules=rules)
    ranges = Ranges(
        {
            site(f"case{i}", side): Range(
                float(x.min()) * 0.9, float(x.max()) * 0.9
            )  # some saturate
            for i, xs in enumerate(data)
            for side, x in enumerate(xs)
        }
    )
    # A transposed convolution stays one: what it is split into has other integers (its test is
    # `tests/passes/test_split_upsampling.py`).
    kept = [p for p in pipeline.passes["float"] if not isinstance(p, SplitUpsampling)]
    run_all(kept, program, PassContext(QuantPlan((), {}), pipeline.settings, TARGET))
    plan = make_plan(program, pipeline, TARGET, ranges)
    for op in plan.ops:
        assert op.decision == "integer", op
    cx = PassContext(plan, pipeline.settings, TARGET)
    integer = rewrite(program, pipeline, cx)["integer"]
    exposed, where = expose(integer, len(cases))
    expected = [reference(case, plan[f"case{i}"], data[i]) for i, case in enumerate(cases)]
    compare(cases, "XLA", XlaExecutable(exposed, strict=True)(*inputs), expected, where)
    if iree:
        run_all(pipeline.passes["target"], exposed, cx)
        compare(cases, "IREE", run_iree(exposed, *inputs), expected, where)


def expose(program: Program, count: int) -> tuple[Program, dict[int, int]]:
    """A copy whose further results are each case's accumulator; case -> its place.

    The accumulator is the integer, all corrections made, that is converted to float.
    """
    copy = program.clone()
    found: dict[int, ir.Value] = {}
    for op in copy.walk():
        name = string_attr(op, NAME)
        if op.operation.name not in ("stablehlo.dot_general", "stablehlo.convolution"):
            continue
        assert dtype_of(op.results[0]).kind == "i", f"{name} is computed in float"
        assert all(dtype_of(v).kind == "i" for v in op.operands)
        found[int(name.removeprefix("case"))] = _corrected(op.results[0])
    assert sorted(found) == list(range(count))
    block = copy.body
    old = block.operations[len(block.operations) - 1]
    first = len(old.operands)
    with at(old):
        func.ReturnOp([*old.operands, *found.values()])
    old.operation.erase()
    copy.refresh()
    copy.outputs = copy.outputs + tuple(
        TensorSpec(f"acc{i}", shape_of(v), dtype_of(v).name) for i, v in found.items()
    )
    return copy, {case: first + place for place, case in enumerate(found)}


def _corrected(value: ir.Value) -> ir.Value:
    """Follows integer arithmetic to the one conversion to float."""
    while True:
        users = [use.owner for use in value.uses]
        assert len(users) == 1, f"{value} has {len(users)} users"
        result = users[0].operation.results[0]
        if dtype_of(result).kind == "f":
            return value
        value = result


@dataclass(frozen=True)
class Expected:
    """The result of a case. Blocks of a contracted axis lead the accumulator's axes."""

    accumulator: np.ndarray
    result: np.ndarray
    bound: np.ndarray


def reference(case: Case, op: OpPlan, operands: list[np.ndarray]) -> Expected:
    """The case in NumPy: codes minus zero points in int64, contracted block by block."""
    sides = [_codes(op.operands[i], x) for i, x in enumerate(operands)]
    accumulators, scaled = [], []
    for cut in _blocks(case, [op.operands[i].encoding for i in (0, 1)]):
        a, b = (q[c] for (q, _), c in zip(sides, cut, strict=True))
        sa, sb = (s[c] for (_, s), c in zip(sides, cut, strict=True))
        accumulators.append(case.reference(a, b))
        factor = case.scales(sa.astype(np.float64), sb.astype(np.float64)).astype(np.float32)
        scaled.append(accumulators[-1].astype(np.float32) * factor)
    single = len(scaled) == 1
    total = scaled[0] if single else np.sum(scaled, axis=0, dtype=np.float64).astype(np.float32)
    # One rounding of each product, and one of each addition.
    ulp = np.spacing(np.sum(np.abs(scaled), axis=0, dtype=np.float32))
    if single:
        return Expected(accumulators[0], total, ulp)
    encodings = [op.operands[i].encoding for i in (0, 1)]
    counts = [n for pair in case.contracted[::-1] if (n := len(_cuts(pair, encodings))) > 1]
    stacked = np.reshape(accumulators, (*counts, *accumulators[0].shape))
    return Expected(stacked, total, ulp * len(scaled))


def _codes(plan: TensorPlan, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 codes minus zero points, and the scale of every element (float32)."""
    fmt, enc = get_format(plan.encoding.format), plan.encoding
    if plan.kind == "weight":
        parts = fmt.encode(x, enc)
        codes, scale = fmt.codes(NUMPY, parts, enc), fmt.scale(NUMPY, parts, enc)
        zero = fmt.zero_point(NUMPY, parts, enc)
    elif plan.kind == "dynamic":
        parts = fmt.quantize_dynamic(NUMPY, x, enc)
        codes, scale, zero = parts["codes"], parts["scale"], parts.get("zero_point")
    else:
        value, point = plan.parameters
        scale = np.full(enc.grid, value, np.float32)
        zero = None if point is None else np.full(enc.grid, point, np.int32)
        codes = fmt.quantize(x, scale, zero, enc)
    codes = codes.astype(np.int64)
    if zero is not None:
        codes -= _spread(zero, enc)
    return codes, _spread(np.asarray(scale, np.float32), enc)


def _spread(grid: np.ndarray, enc: Encoding) -> np.ndarray:
    """The entry of every element's block."""
    for axis, (n, block) in enumerate(zip(enc.shape, enc.block, strict=True)):
        grid = np.take(grid, np.arange(n) // (block or n), axis)
    return grid


def _blocks(case: Case, encodings: list[Encoding]) -> list[list[tuple[slice, ...]]]:
    """For every block of the contracted axes that have any: where it lies in both operands. Those
    of the last axis lead."""
    axes = [_cuts(pair, encodings) for pair in case.contracted]
    found = []
    for chosen in product(*axes[::-1]):
        cut = [[slice(None)] * len(e.shape) for e in encodings]
        for pair, piece in zip(case.contracted[::-1], chosen, strict=True):
            for side in (0, 1):
                cut[side][pair[side]] = piece
        found.append([tuple(c) for c in cut])
    return found


def _cuts(pair: tuple[int, int], encodings: list[Encoding]) -> list[slice]:
    """The blocks of one contracted axis."""
    sizes = [e.block[a] for e, a in zip(encodings, pair, strict=True) if e.grid[a] > 1]
    length = encodings[0].shape[pair[0]]
    size = min(sizes, default=length)
    return [slice(start, start + size) for start in range(0, length, size)]


def compare(
    cases: Sequence[Case],
    runner: str,
    results: list[np.ndarray],
    expected: list[Expected],
    where: dict[int, int],
) -> None:
    for i, want in enumerate(expected):
        what = f"{runner}, case {i}: {cases[i]}"
        accumulator = results[where[i]]
        assert accumulator.dtype in (np.int32, np.int64), what
        np.testing.assert_array_equal(accumulator, want.accumulator, err_msg=what)
        error = np.abs(results[i].astype(np.float64) - want.result)
        assert results[i].shape == want.result.shape, what
        assert (error <= want.bound).all(), f"{what}: {error.max()} beyond {want.bound}"
