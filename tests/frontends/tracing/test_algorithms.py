"""Products with an algorithm: every preset compiles, and is as precise as it says."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.frontends.tracing import trace
from jq.iree.compiler import HOST_FLAGS, compile_module
from tests.traps.helpers import trap

MANTISSA = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
# Of each preset: the type of operands, of sums, and how many products there are for one.
PRESETS = {
    "ANY_F8_ANY_F8_F32": ("f8E5M2", "f32", 1),
    "ANY_F8_ANY_F8_F32_FAST_ACCUM": ("f8E4M3FN", "f32", 1),
    "ANY_F8_ANY_F8_ANY": ("f8E4M3FN", "f32", 1),
    "F16_F16_F16": ("f16", "f16", 1),
    "F16_F16_F32": ("f16", "f32", 1),
    "BF16_BF16_BF16": ("bf16", "bf16", 1),
    "BF16_BF16_F32": ("bf16", "f32", 1),
    "BF16_BF16_F32_X3": ("bf16", "f32", 3),
    "BF16_BF16_F32_X6": ("bf16", "f32", 6),
    "BF16_BF16_F32_X9": ("bf16", "f32", 9),
    "TF32_TF32_F32": ("tf32", "f32", 1),
    "TF32_TF32_F32_X3": ("tf32", "f32", 3),
    "F32_F32_F32": ("f32", "f32", 1),
    "F64_F64_F64": ("f64", "f64", 1),
}
CASES = list(product(PRESETS, ("bf16", "f16", "f32", "f64")))
SUM = 64


def module() -> str:
    """One function with a batched product for each case: operands and result are of one type."""
    kinds = {t: (f"tensor<2x3x{SUM}x{t}>", f"tensor<2x{SUM}x5x{t}>") for t in DTYPES}
    names = [f"%{side}{t}: {kinds[t][i]}" for t in DTYPES for i, side in enumerate("ab")]
    lines, results = [], [f"tensor<2x3x5x{t}>" for _, t in CASES]
    for i, ((preset, t), result) in enumerate(zip(CASES, results, strict=True)):
        operand, sums, products = PRESETS[preset]
        fast = str(preset.endswith("FAST_ACCUM")).lower()
        lines.append(
            f"%{i} = stablehlo.dot_general %a{t}, %b{t}, batching_dims = [0] x [0], "
            f"contracting_dims = [2] x [1], algorithm = <lhs_precision_type = {operand}, "
            f"rhs_precision_type = {operand}, accumulation_type = {sums}, "
            "lhs_component_count = 1, rhs_component_count = 1, "
            f"num_primitive_operations = {products}, allow_imprecise_accumulation = {fast}> : "
            f"({', '.join(kinds[t])}) -> {result}"
        )
    values = ", ".join(f"%{i}" for i in range(len(CASES)))
    head = f"func.func public @main({', '.join(names)}) -> ({', '.join(results)}) {{"
    return "\n".join([head, *lines, f"return {values} : {', '.join(results)}", "}"])


def test_every_preset(tmp_path: Path) -> None:
    path, rng = tmp_path / "presets.mlir", np.random.default_rng(0)
    path.write_text(module())
    shapes = ((2, 3, SUM), (2, SUM, 5))
    given = [rng.standard_normal(s).astype(t) for t in DTYPES.values() for s in shapes]
    found = jq.compile(path, pipeline="float")(*given)
    for (preset, t), y in zip(CASES, found, strict=True):
        i = 2 * list(DTYPES).index(t)
        a, b = (x.astype(np.float64) for x in given[i : i + 2])
        steps = min(MANTISSA[t], MANTISSA[PRESETS[preset][1]])
        # The result's rounding, and less than one of a sum's for each of its terms.
        bound = (2.0 ** -(MANTISSA[t] + 1) + SUM * 2.0 ** -(max(steps, 23) + 1)) * 1.01
        assert (np.abs(np.float64(y) - a @ b) <= bound * (np.abs(a) @ np.abs(b))).all(), preset


@trap
def test_iree_lowers_products_with_an_algorithm() -> None:
    compile_module(module().encode(), flags=HOST_FLAGS)


def test_no_algorithm_is_left() -> None:
    """In loops and functions as well; sums are in float32 and rounded after."""

    def fn(p, x):
        def step(c, _):
            return jnp.matmul(c, p, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32), None

        return jax.lax.scan(jax.jit(step), x, None, length=3)[0]

    ones = np.ones((4, 4), ml_dtypes.bfloat16)
    text = str(trace(jq.Model(fn, ones, (ones,))).module)
    assert "algorithm" not in text
    assert "(tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>" in text


def test_what_jax_does_not_lower_is_no_matter_of_shapes() -> None:
    """The model takes samples as well as batches of them, and the batch is not to blame."""

    def fn(p, x):
        return jnp.dot(x, p, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X9)

    model = jq.Model(fn, np.ones((4, 4), np.float32), (np.ones((2, 4), np.float32),))
    with pytest.raises(jq.UserError, match="cannot be traced: .*BF16_BF16_F32_X9.* on CPU"):
        trace(model)


@pytest.mark.parametrize("pipeline", ["float", "int8-dynamic"])
def test_the_attention_of_the_library_in_bfloat16(pipeline: str) -> None:
    rng, shape = np.random.default_rng(0), (1, 8, 2, 8)
    weights = (rng.standard_normal((16, 16)) / 4).astype(ml_dtypes.bfloat16)
    x = rng.standard_normal((1, 8, 16)).astype(ml_dtypes.bfloat16)

    def fn(p, x):
        heads = (x @ p).reshape(shape)
        return jax.nn.dot_product_attention(heads, heads, heads, is_causal=True)

    model = jq.Model(fn, weights, (x,))
    want = np.asarray(jax.jit(fn)(weights, x), np.float32)
    error = np.abs(np.float32(jq.compile(model, pipeline=pipeline)(x)) - want).max()
    # Three roundings to bfloat16 in a row; of codes of int8 more.
    assert error <= (3 * 2.0**-8 if pipeline == "float" else 0.05) * np.abs(want).max()
