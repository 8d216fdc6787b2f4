"""Layers in a `scan`: their weights are one stacked tensor, read a slice at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.ir import Program, dtype_of, shape_of
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.planning.calibration.run import calibrate
from jq.target.target import load_target
from tests.support.texts import run_iree

LAYERS, WIDTH = 3, 32
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.standard_normal((LAYERS, WIDTH, WIDTH)).astype(np.float32) / 6}
X = RNG.standard_normal((5, WIDTH)).astype(np.float32)


def scanned(params, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0]


def looped(params, x):
    def body(i, h):
        w = jax.lax.dynamic_index_in_dim(params["w"], i, keepdims=False)
        return jnp.tanh(h @ w)

    return jax.lax.fori_loop(0, LAYERS, body, x)


def branched(params, x):
    return jax.lax.cond(x[0, 0] > 0, lambda: x @ params["w"][0], lambda: x @ params["w"][1].T)


def levels(fn, pipeline: str, **settings: str) -> dict[str, Program]:
    loaded, target = load_pipeline(pipeline, settings), load_target("llvm-cpu")
    program = prepare(trace(Model(fn, PARAMS, (X,))), loaded, target)
    ranges = calibrate(program, [[X], [-X]]) if "static" in pipeline else None
    plan = make_plan(program, loaded, target, ranges)
    (op,) = {op.decision for op in plan.ops}
    assert op == ("weight-only" if "weight" in pipeline else "integer"), plan.ops
    return rewrite(program, loaded, PassContext(plan, loaded.settings, target))


def reference(fn, program: Program) -> np.ndarray:
    """The float function on the weights as they are stored: what is left is arithmetic."""
    from jq.formats import NUMPY, Encoding, get_format

    stored = program.encodings["w"]
    keys = ("format", "scheme", "scale_type")
    enc = Encoding(
        shape=tuple(stored["shape"]), block=tuple(stored["block"]), **{k: stored[k] for k in keys}
    )
    fmt = get_format(enc.format)
    return np.asarray(fn({"w": fmt.decode(NUMPY, fmt.encode(PARAMS["w"], enc), enc)}, X))


@pytest.mark.parametrize("fn", [scanned, looped])
@pytest.mark.parametrize("pipeline", ["int8-weight-only", "int8-dynamic", "int8-static"])
def test_stacked_weights_stay_bytes_inside_the_loop(fn, pipeline):
    program = levels(fn, pipeline)["integer"]
    (loop,) = (op for op in program.walk() if op.operation.name == "stablehlo.while")
    carried = [v for v in loop.operands if shape_of(v) == (LAYERS, WIDTH, WIDTH)]
    assert all(dtype_of(v) == np.int8 for v in carried)
    body = loop.regions[1].blocks[0].operations
    results = [r for op in body for r in op.operation.results]
    assert not any(
        dtype_of(r).kind == "f" and shape_of(r) == (LAYERS, WIDTH, WIDTH) for r in results
    )
    slices = [r for r in results if r.owner.name == "stablehlo.dynamic_slice"]
    assert (1, WIDTH, WIDTH) in {shape_of(r) for r in slices if dtype_of(r) == np.int8}


@pytest.mark.parametrize("fn", [scanned, looped, branched])
def test_weight_only_loops_compute_the_same(fn):
    program = levels(fn, "int8-weight-only")["integer"]
    want = reference(fn, program)
    # The scale is applied after the sum instead of before it: roundings of sums of 32 terms.
    np.testing.assert_allclose(XlaExecutable(program)(X)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])
def test_integer_loops_are_close_to_float_on_both_compilers(pipeline):
    programs = levels(scanned, pipeline)
    want = np.asarray(scanned(PARAMS, X))
    xla = XlaExecutable(programs["integer"], strict=True)(X)[0]
    iree = run_iree(programs["target"], X)[0]
    # Half a step of 8 bits in each factor of sums of 32 terms around 1, three layers deep.
    step = LAYERS * np.sqrt(WIDTH) / 255 / 2
    assert np.sqrt(np.mean((xla - want) ** 2)) < step
    assert np.sqrt(np.mean((iree - want) ** 2)) < step


def test_a_layer_of_its_own_scales():
    program = levels(scanned, "int8-weight-only")["integer"]
    assert program.weights["w:scale"].shape == (LAYERS, 1, WIDTH)


@pytest.mark.parametrize("format", ["int4", "mxfp4", "q8_0"])
def test_block_formats_in_a_loop(format):
    settings = {"weights.format": format, "weights.granularity": "per-block"}
    program = levels(scanned, "int8-weight-only", **settings)["integer"]
    want = reference(scanned, program)
    np.testing.assert_allclose(XlaExecutable(program)(X)[0], want, rtol=1e-5, atol=1e-5)
    values = [r for op in program.walk() for r in op.operation.results]
    assert not any(shape_of(r) == (LAYERS, WIDTH, WIDTH) for r in values if dtype_of(r).kind == "f")
