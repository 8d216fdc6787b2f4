"""Models that arrive with codes of their own: written by hand in JAX, or in StableHLO's types."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.base.errors import UserError
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
W = RNG.integers(-127, 128, (8, 3)).astype(np.int8)
S = np.array([[0.1, 0.2, 0.3]], np.float32)
X = np.concatenate([RNG.standard_normal((4, 8)), np.arange(-4, 4)[None] * 0.05 + 0.025])
X = X.astype(np.float32)


def by_hand(p, x):
    codes = jnp.clip(jnp.round(x / 0.05) + 3, -128, 127).astype(jnp.int8)
    return ((codes.astype(jnp.float32) - 3) * 0.05) @ (p["w"].astype(jnp.float32) * p["s"])


TYPES = """
func.func @main(%x: tensor<5x8xf32>) -> tensor<5x3xf32> {
  %q = stablehlo.uniform_quantize %x : (tensor<5x8xf32>) -> tensor<5x8x!quant.uniform<i8:f32, 0.05:3>>
  %w = stablehlo.constant() {value = dense<WEIGHT> : tensor<8x3xi8>} : () -> tensor<8x3x!quant.uniform<i8:f32:1, {0.1,0.2,0.3}>>
  %y = stablehlo.dot_general %q, %w, contracting_dims = [1] x [0] : (tensor<5x8x!quant.uniform<i8:f32, 0.05:3>>, tensor<8x3x!quant.uniform<i8:f32:1, {0.1,0.2,0.3}>>) -> tensor<5x3x!quant.uniform<i32:f32:1, {0.005,0.01,0.015}>>
  %r = stablehlo.uniform_dequantize %y : (tensor<5x3x!quant.uniform<i32:f32:1, {0.005,0.01,0.015}>>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}"""  # noqa: E501


def expected(before: bool) -> np.ndarray:
    """With the zero point added before rounding, as StableHLO does, or after it."""
    steps = X / np.float32(0.05)
    codes = np.clip(np.rint(steps + 3) if before else np.rint(steps) + 3, -128, 127)
    return ((codes - 3) @ W.astype(np.float64)) * 0.05 * S


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static", "int8-weight-only"])
def test_by_hand_in_jax(pipeline):
    model = jq.Model(by_hand, {"w": W, "s": S}, (X,))
    (op,) = jq.plan(model, pipeline=pipeline).ops
    assert op.decision == "integer"
    assert [p.describe() for p in op.operands.values()] == [
        "int8 per-channel symmetric (stored)",
        "int8 per-tensor asymmetric (given)",
    ]
    program = jq.rewrite(model, pipeline=pipeline)["integer"]
    assert np.allclose(evaluated(program, X)[0], expected(before=False), rtol=1e-5)


def test_quantized_types_of_stablehlo(tmp_path):
    path = tmp_path / "typed.mlir"
    path.write_text(TYPES.replace("WEIGHT", str(W.tolist())))
    program = jq.rewrite(str(path), pipeline="int8-dynamic")["integer"]
    (line,) = [s for s in program.text().splitlines() if "dot_general" in s]
    assert line.count("xi8>") == 2 and "xi32>" in line
    want = expected(before=True)
    assert not np.allclose(want, expected(before=False))  # ties with an odd zero point
    half_a_step = np.array([0.005, 0.01, 0.015]) / 2  # the result is quantized, too
    assert (np.abs(evaluated(program, X)[0] - want) <= half_a_step * 1.001).all()


STORED = """
func.func @main(%x: tensor<5x8xf32>) -> tensor<5x3xf32> {
  %q = stablehlo.uniform_quantize %x : (tensor<5x8xf32>) -> tensor<5x8x!X>
  %a = stablehlo.uniform_dequantize %q : (tensor<5x8x!X>) -> tensor<5x8xf32>
  %w = stablehlo.constant() {value = dense<WEIGHT> : tensor<8x3xi8>} : () -> tensor<8x3x!W>
  %b = stablehlo.uniform_dequantize %w : (tensor<8x3x!W>) -> tensor<8x3xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<5x8xf32>, tensor<8x3xf32>) -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}"""  # noqa: E501


def test_unsigned_storage_stands_for_the_same_numbers(tmp_path):
    """Codes above 127, of the input and of a constant."""
    path, texts = tmp_path / "stored.mlir", []
    for x, w, codes in (
        ("i8:f32, 0.05:3", "i8:f32:1, {0.1,0.2:-7,0.3}", W),
        ("u8:f32, 0.05:131", "u8:f32:1, {0.1:128,0.2:121,0.3:128}", W ^ np.int8(-128)),
    ):
        text = STORED.replace("WEIGHT", str(codes.tolist()))
        for name, kind in (("!X", x), ("!W", w)):
            text = text.replace(name, f"!quant.uniform<{kind}>")
        path.write_text(text)
        program = jq.rewrite(str(path), pipeline="int8-dynamic")["integer"]
        texts.append((program.text(), [a.tolist() for a in program.weights.values()]))
    assert texts[0] == texts[1]
    want = expected(before=True) + 1.4 * np.float32([0, 1, 0]) * _real(X).sum(1, keepdims=True)
    np.testing.assert_allclose(evaluated(program, X)[0], want, rtol=1e-5)


def _real(x: np.ndarray) -> np.ndarray:
    return (np.clip(np.rint(x / np.float32(0.05) + 3), -128, 127) - 3) * 0.05


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("(%x: tensor<2x!Q>) -> tensor<2x!Q> { return %x : tensor<2x!Q> }", "input or a result"),
        (
            """(%x: tensor<2xf32>) -> tensor<2xi8> {
              %q = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!Q>
              %c = stablehlo.bitcast_convert %q : (tensor<2x!Q>) -> tensor<2xi8>
              return %c : tensor<2xi8> }""",
            "bit cast",
        ),
    ],
)
def test_unsigned_codes_that_leave_their_type_are_refused(tmp_path, body, reason):
    path = tmp_path / "unsigned.mlir"
    path.write_text("func.func @main" + body.replace("!Q", "!quant.uniform<u8:f32, 0.05:131>"))
    with pytest.raises(UserError, match=reason):
        jq.rewrite(str(path))


def test_a_product_of_wide_integers_is_left_alone():
    def fn(p, x):
        return x.astype(jnp.int32) @ p["w"].astype(jnp.int32)

    model = jq.Model(fn, {"w": W}, (X,))
    (op,) = jq.plan(model).ops
    assert (op.decision, op.reason) == ("float", "already integer")
    before = api.trace(model).program
    same = evaluated(jq.rewrite(model)["integer"], X)[0]
    assert np.array_equal(same, evaluated(before, X)[0])


@pytest.mark.parametrize(
    "fn",
    [
        lambda p, x: (x.astype(jnp.int8).astype(jnp.float32) - 0.5) * 0.1 @ jnp.ones((8, 2)),
        lambda p, x: (x.astype(jnp.int8).astype(jnp.float32) * x) @ jnp.ones((8, 2)),
        lambda p, x: (x.astype(jnp.uint8).astype(jnp.float32) * 0.1) @ jnp.ones((8, 2)),
    ],
)
def test_what_is_no_dequantize(fn):
    model = jq.Model(fn, {}, (X,))
    assert "jq.dequantize" not in jq.rewrite(model, pipeline="float")["float"].text()


@pytest.mark.parametrize(("name", "dtype"), [("bf16", jnp.bfloat16), ("f16", jnp.float16)])
def test_quantized_types_that_stand_for_narrow_floats(tmp_path, name, dtype):
    """Scales, inputs and what codes stand for have that type; the product is one of codes."""
    text = STORED.replace("WEIGHT", str(W.tolist())).replace("f32", name)
    for short, kind in (("!X", "i8:T, 0.05:3"), ("!W", "i8:T:1, {0.1,0.2:-7,0.3}")):
        text = text.replace(short, f"!quant.uniform<{kind}>").replace(":T", f":{name}")
    path = tmp_path / "narrow.mlir"
    path.write_text(text)
    x = X.astype(dtype)
    program = jq.rewrite(str(path), pipeline="int8-dynamic")["integer"]
    assert program.text().count("tensor<8x3xi8>") and "i32" in program.text()
    a, b = (np.asarray(s, dtype).astype(np.float64) for s in (0.05, [0.1, 0.2, 0.3]))
    steps = np.float32(x) / np.float32(a) + 3
    left = ((np.clip(np.rint(steps), -128, 127) - 3) * a).astype(dtype).astype(np.float64)
    right = ((W - np.array([0, -7, 0])) * b).astype(dtype).astype(np.float64)
    got = np.asarray(evaluated(program, x)[0])
    assert got.dtype == dtype
    bound = 2.0 ** -(jnp.finfo(dtype).nmant + 1) * 3  # each factor is rounded once, and the result
    assert (np.abs(got - left @ right) <= bound * (np.abs(left) @ np.abs(right))).all()
