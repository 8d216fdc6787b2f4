"""Products with a part, or another shape, of a stored weight: the codes alone decide."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format
from jq.ir import dtype_of
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from tests.ir.ops.integers import TARGET
from tests.support.programs import evaluated
from tests.support.texts import load

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32) + 1
W = np.random.default_rng(1).standard_normal((16, 12)).astype(np.float32)
# How a [8, 4] operand is made of the [16, 12] weight: text, and the same in NumPy.
PARTS = {
    "rows": (
        "%a = stablehlo.slice %w [0:8, 0:12] : (tensor<16x12xf32>) -> tensor<8x12xf32>\n"
        "%p = stablehlo.slice %a [0:8, 4:8] : (tensor<8x12xf32>) -> tensor<8x4xf32>",
        lambda w: w[:8, 4:8],
    ),
    "every other row": (
        "%p = stablehlo.slice %w [1:16:2, 0:4] : (tensor<16x12xf32>) -> tensor<8x4xf32>",
        lambda w: w[1:16:2, :4],
    ),
    "every other row from end to end": (
        "%p = stablehlo.slice %w [0:16:2, 8:12] : (tensor<16x12xf32>) -> tensor<8x4xf32>",
        lambda w: w[::2, 8:],
    ),
    "the other way round": (
        "%a = stablehlo.slice %w [4:8, 0:8] : (tensor<16x12xf32>) -> tensor<4x8xf32>\n"
        "%p = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>",
        lambda w: w[4:8, :8].T,
    ),
    "cut in heads": (
        "%a = stablehlo.reshape %w : (tensor<16x12xf32>) -> tensor<16x3x4xf32>\n"
        "%b = stablehlo.slice %a [8:16, 1:2, 0:4] : (tensor<16x3x4xf32>) -> tensor<8x1x4xf32>\n"
        "%p = stablehlo.reshape %b : (tensor<8x1x4xf32>) -> tensor<8x4xf32>",
        lambda w: w.reshape(16, 3, 4)[8:, 1],
    ),
}


@pytest.mark.parametrize("granularity", ["per-tensor", "per-channel", "per-block"])
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("part", PARTS)
def test_integers_of_a_part(part, scheme, granularity):
    text, take = PARTS[part]
    program = load(
        f"""(%x: tensor<3x8xf32>, %w: tensor<16x12xf32> {{jq.weight = "w"}}) -> tensor<3x4xf32> {{
          {text}
          %y = stablehlo.dot_general %x, %p, contracting_dims = [1] x [0]
               : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
          return %y : tensor<3x4xf32> }}""",
        {"w": W},
    )
    settings = {"weights.scheme": scheme, "weights.granularity": granularity}
    if granularity == "per-block":
        settings["weights.block_size"] = 4
    pipeline = load_pipeline("int8-dynamic", settings)
    program = prepare(program, pipeline, TARGET)
    plan = make_plan(program, pipeline, TARGET)
    cx = PassContext(plan, pipeline.settings, TARGET)
    integer = rewrite(program, pipeline, cx)["integer"]
    kinds = {
        dtype_of(op.operation.results[0]).kind
        for op in integer.walk()
        if op.operation.name == "stablehlo.dot_general"
    }
    if plan.ops[0].decision == "integer" and granularity != "per-block":
        assert kinds == {"i"}
    fmt, enc = get_format("int8"), plan.weights["w"]
    weight = take(np.asarray(fmt.decode(NUMPY, fmt.encode(W, enc), enc)))
    x = X
    if plan.ops[0].decision == "integer":
        tokens = Encoding("int8", X.shape, (1, 0), "asymmetric")
        parts = fmt.quantize_dynamic(NUMPY, X, tokens)
        x = fmt.dequantize(NUMPY, parts["codes"], parts["scale"], parts["zero_point"], tokens)
    got = evaluated(integer, X)[0]
    want = x.astype(np.float64) @ weight.astype(np.float64)
    # Eight products, each rounded a few times.
    np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-23 * 8 * np.abs(x).max() * 8)
