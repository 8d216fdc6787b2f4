"""Lookups in tables of every format: the rows of the decoded table, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Format, get_format
from jq.ir import Program, dtype_of, shape_of
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.planning.decisions import QuantPlan
from jq.target.rules import Rule
from jq.target.target import load_target
from tests.support.programs import assert_same_bits
from tests.support.texts import load, run_iree

NAMES = sorted(Format.registry)
ROWS, WIDTH = 40, 256
TABLE = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
# Beyond both ends of the table: StableHLO clamps.
INDICES = np.array([[0, 39, 7], [40, -1, 2**31 - 1]], np.int32)
LOOKUP = """"stablehlo.gather"(%w, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2],
  collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
  slice_sizes = array<i64: 1, 256>}> : (tensor<40x256xf32>, tensor<2x3xi32>) -> tensor<2x3x256xf32>
"""


def rewritten() -> tuple[QuantPlan, dict[str, Program]]:
    """One lookup for each format."""
    tables = ", ".join(f'%w{n}: tensor<40x256xf32> {{jq.weight = "{n}"}}' for n in NAMES)
    body = "\n".join(f"%y{n} = {LOOKUP.replace('%w', f'%w{n}')}" for n in NAMES)
    kinds = ", ".join(["tensor<2x3x256xf32>"] * len(NAMES))
    results = ", ".join(f"%y{n}" for n in NAMES)
    text = f"(%i: tensor<2x3xi32>, {tables}) -> ({kinds}) {{ {body} return {results} : {kinds} }}"
    rules = tuple(
        Rule(
            pattern=name,
            override={
                "weights.format": name,
                "weights.granularity": "per-block" if "4" in name else "per-channel",
                "weights.scheme": get_format(name).schemes[-1],
            },
        )
        for name in NAMES
    )
    pipeline, target = load_pipeline("int8-weight-only", rules=rules), load_target("llvm-cpu")
    program = prepare(load(text, dict.fromkeys(NAMES, TABLE)), pipeline, target)
    plan = make_plan(program, pipeline, target)
    return plan, rewrite(program, pipeline, PassContext(plan, pipeline.settings, target))


@pytest.fixture(scope="module")
def levels():
    return rewritten()


@pytest.mark.parametrize("runner", ["XLA", "IREE"])
def test_rows_of_the_decoded_table(levels, runner):
    plan, programs = levels
    if runner == "XLA":
        got = XlaExecutable(programs["integer"], strict=True)(INDICES)
    else:
        got = run_iree(programs["target"], INDICES)
    rows = np.clip(INDICES, 0, ROWS - 1)
    assert [op.decision for op in plan.ops] == ["weight-only"] * len(NAMES), plan.ops
    for name, value in zip(NAMES, got, strict=True):
        fmt, enc = get_format(name), plan.weights[name]
        decoded = fmt.decode(NUMPY, fmt.encode(TABLE, enc), enc)
        assert_same_bits(value, np.asarray(decoded)[rows], f"{runner}, {enc}")


def test_only_the_rows_that_are_read_are_decoded(levels):
    """The lookup reads stored parts; no float table exists at any level."""
    program = levels[1]["integer"]
    values = [*program.body.arguments, *(r for op in program.walk() for r in op.operation.results)]
    assert not any(dtype_of(v).kind == "f" and shape_of(v) == TABLE.shape for v in values)
    markers = [op for op in levels[1]["qdq"].walk() if match(op, DEQUANTIZE)]
    assert len(markers) == len(NAMES)
