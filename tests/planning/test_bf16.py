"""The pipeline `bf16`: weights in bfloat16, operands of products rounded to it, sums in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.base.progress import silent
from jq.ir.decisions import facts_of
from jq.kernels import detect
from jq.reporting.measuring.glance import at_a_glance
from tests.kernels.strategies import HERE
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8, 64)).astype(np.float32)
P = {n: (RNG.standard_normal((64, 64)) / 8).astype(np.float32) for n in "qkvof"}
UNIT = 2.0**-24


def _halved(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("target", ["llvm-cpu", "x86-64-v3", "llvm-cpu-portable"])
def test_operands_are_rounded_and_sums_are_not(target: str) -> None:
    if target == "x86-64-v3" and "avx2" not in HERE:
        pytest.skip("no AVX2 here")
    model = jq.Model(lambda p, x: x @ p["f"], P, (X,))
    levels = jq.rewrite(model, pipeline="bf16", target=target)
    assert levels["integer"].weights["f"].dtype == ml_dtypes.bfloat16
    exact = _halved(X) @ _halved(P["f"])
    bound = (64 + 2) * UNIT * (abs(_halved(X)) @ abs(_halved(P["f"])))
    (told,) = evaluated(levels["integer"], X)
    compiled = jq.compile(model, pipeline="bf16", target=target)
    for found in (told, np.asarray(compiled(X))):
        assert (abs(found - exact) <= bound + UNIT * abs(exact)).all()
        assert (abs(found - X @ P["f"]) > bound).any()  # it is not the product of float32


def _attention(p: dict[str, np.ndarray], x: jax.Array) -> jax.Array:
    q, k, v = (jnp.reshape(x @ p[n], (6, 8, 4, 16)) for n in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(6, 8, 64)
    return jax.nn.gelu(y @ p["o"] + 1, approximate=False) + x


def test_attention_and_what_follows_products_are_kernels() -> None:
    model = jq.Model(_attention, P, (X,))
    target = jq.rewrite(model, pipeline="bf16", target="amx_int8")["target"]
    kernels = sorted(facts_of(target, "kernel").values())
    assert [str(k).partition("_")[0] for k in kernels] == ["attention"] * 2 + ["gemm"] * 4
    text = target.text().partition("func.func private")[0]
    assert text.count(" = call @jq_gemm_48x64x192") == 1  # q, k and v at once
    assert "bf16>" not in text and "stablehlo.erf" not in text and "stablehlo.add" not in text
    compiled = np.asarray(jq.compile(model, pipeline="bf16")(X))
    whole = np.asarray(jax.jit(_attention)(P, X))
    assert 20 * np.log10(abs(whole).max() / abs(compiled - whole).max()) > 40


HALVED = detect().multiplies_bf16  # by the host's own target

STORED: list[tuple[str, list[str], str, bool]] = [
    ("int4-weight-only", [], "llvm-cpu", HALVED),
    ("int8-weight-only", [], "amx_int8", True),
    ("int4-weight-only", [], "amx_int8", True),
    ("mxfp4-weight-only", [], "amx_int8", True),
    ("int8-weight-only", ["float_type=float32"], "amx_int8", False),
    ("int8-weight-only", ["weights.format=int16"], "amx_int8", False),
    ("int8-weight-only", ["weights.format=float"], "amx_int8", False),
    ("int8-weight-only", [], "x86-64-v3", False),
    ("int8-weight-only", [], "llvm-cpu-portable", False),
    ("int8-weight-only", ["float_type=bfloat16"], "x86-64-v3", False),
]


@pytest.mark.parametrize(("pipeline", "more", "target", "halved"), STORED)
def test_products_of_stored_weights_are_rounded_where_that_is_faster(
    pipeline: str, more: list[str], target: str, halved: bool
) -> None:
    """The plan, the levels and what is told of the kernel say so as well."""
    model = jq.Model(lambda p, x: jax.nn.relu(x @ p["f"] + 1), P, (X,))
    told: dict[str, Any] = {"pipeline": pipeline, "settings": ["recovery=false", *more]}
    levels = jq.rewrite(model, target=target, **told)
    assert ("bf16" in levels["integer"].text()) == halved
    assert ("precision\\22: \\22bf16" in levels["target"].text()) == halved
    (row,) = jq.explain(model, target=target, **told)["ops"]
    assert ("rounded to bfloat16" in row["reason"]) == halved
    assert (row["lhs"] == row["rhs"] == "bf16") == halved


@pytest.mark.parametrize(("pipeline", "halved"), [("int8-weight-only", False), ("bf16", True)])
def test_weights_that_came_quantized_are_multiplied_as_they_are(
    pipeline: str, halved: bool
) -> None:
    small = jq.quantize_weights(jq.Model(lambda p, x: x @ p["f"], P, (X,)), dtype="int8")
    levels = jq.rewrite(small, pipeline=pipeline, target="amx_int8")
    assert ("bf16" in levels["integer"].text()) == halved
    assert ("precision\\22: \\22bf16" in levels["target"].text()) == halved


@pytest.mark.skipif(not HALVED, reason="no products of bfloat16 here")
@pytest.mark.parametrize(("pipeline", "neighbours"), [("int8", 0), ("int4", 1), ("mxfp4", 0)])
def test_levels_agree_with_the_kernel_of_rounded_products(pipeline: str, neighbours: int) -> None:
    """Few rows are multiplied as they are, and so is what is no product of matrices."""

    def fn(p: dict[str, np.ndarray], x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        image = _convolved(x[:, :, None, :16], jnp.asarray(p["wide"]))
        return x @ p["f"], x[0, :3] @ p["f"], image

    params = P | {"wide": RNG.standard_normal((3, 3, 16, 32)).astype(np.float32)}
    model = jq.Model(fn, params, (X,))
    compiled = jq.compile(model, f"{pipeline}-weight-only", settings=["recovery=false"])
    kernels = {op["name"]: op["kernel"] for op in compiled.manifest.ops}
    assert all("decode_dot" in k or "gemv" in k for k in kernels.values()), kernels
    whole, few, image = compiled(X)
    levels = evaluated(compiled.levels["integer"], X)
    exact = jq.rewrite(
        model, pipeline=f"{pipeline}-weight-only", settings=["recovery=false", "float_type=float32"]
    )["integer"]
    plain = evaluated(exact, X)
    sizes = [abs(X) @ abs(P["f"]) * 1.2, _convolved(abs(X)[:, :, None, :16], abs(params["wide"]))]
    unit = (144 + 8) * UNIT + neighbours * 2.0**-8  # a decode may fall to another neighbour
    for found, level, float32, size in zip(
        (whole, image), levels[::2], plain[::2], sizes, strict=True
    ):
        assert (abs(np.asarray(found) - level) <= unit * np.asarray(size) * 1.2 + UNIT).all()
        assert (abs(np.asarray(found) - float32) > (144 + 8) * UNIT * np.asarray(size)).any()
    assert np.allclose(few, plain[1], atol=1e-5) and np.allclose(levels[1], plain[1], atol=1e-5)


@pytest.mark.parametrize("more", [[], ["activations.format=mxfp8_e5m2"], ["float_type=float32"]])
@pytest.mark.parametrize("target", ["amx_int8", "llvm-cpu", "x86-64-v3"])
def test_products_of_mx_floats_have_kernels_and_are_exact_in_bfloat16(
    target: str, more: list[str]
) -> None:
    """Many rows and few; both operands are numbers of bfloat16, so that only sums round."""
    if {"x86-64-v3": "avx2", "llvm-cpu": HERE[0]}.get(target, target) not in HERE:
        pytest.skip(f"no {target} here")
    model = jq.Model(lambda p, x: (x @ p["f"], x[0, :3] @ p["f"]), P, (X,))
    told: dict[str, Any] = {"pipeline": "mxfp8", "settings": ["recovery=false", *more]}
    told["target"] = target
    compiled = jq.compile(model, **told)
    first, second = compiled.manifest.ops
    halves = target == "amx_int8" or (target == "llvm-cpu" and HALVED)
    halved = halves and more != ["float_type=float32"]
    assert first["kernel"].startswith("decode_dot") and second["kernel"]
    assert ([first["lhs"], first["rhs"]] == ["bf16", "bf16"]) == halved and second["lhs"] != "bf16"
    told["settings"] = ["recovery=false", *more[:1], "float_type=float32"]
    plain = evaluated(jq.rewrite(model, **told)["integer"], X)
    levels = evaluated(compiled.levels["integer"], X)
    sizes = abs(X) @ abs(P["f"]) * 1.2  # codes may be larger by half a step
    for got, level, want, size in zip(
        compiled(X), levels, plain, (sizes, sizes[0, :3]), strict=True
    ):
        for found in (np.asarray(got), level):
            assert (abs(found - want) <= 2 * (64 + 8) * UNIT * size).all()


def _convolved(x: jax.Array, w: jax.Array, groups: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def test_rounded_convolutions_and_lookups() -> None:
    """A filter for each channel, whose products are of float32, and an embedding."""
    params = {
        "table": RNG.standard_normal((20, 8)).astype(np.float32),
        "deep": RNG.standard_normal((3, 3, 1, 8)).astype(np.float32),
        "wide": RNG.standard_normal((3, 3, 8, 16)).astype(np.float32),
    }

    def between(p: dict[str, np.ndarray], tokens: jax.Array) -> jax.Array:
        image = jnp.take(p["table"], tokens, axis=0, mode="clip").reshape(1, 6, 6, 8)
        return _convolved(image, jnp.asarray(p["deep"]), 8)

    def fn(p: dict[str, np.ndarray], tokens: jax.Array) -> jax.Array:
        return jax.nn.relu(_convolved(between(p, tokens), jnp.asarray(p["wide"])))

    tokens = RNG.integers(0, 20, 36, dtype=np.int32)
    model = jq.Model(fn, params, (tokens,))
    levels = jq.rewrite(model, pipeline="bf16")
    assert levels["integer"].weights["table"].dtype == ml_dtypes.bfloat16
    kernels = facts_of(levels["target"], "kernel")
    assert levels["integer"].weights["deep"].dtype == ml_dtypes.bfloat16
    assert kernels["wide"].startswith("convolution") and kernels["deep"].startswith("depthwise")
    (told,) = evaluated(levels["integer"], tokens)
    compiled = np.asarray(jq.compile(model, pipeline="bf16")(tokens))
    # The sums of the first, in two orders, may be rounded to neighbours, 2^-7 apart at most.
    sizes = {name: abs(array) for name, array in params.items()}
    largest = between(sizes, jnp.asarray(tokens)) * (1 + 2.0**-6)
    bound = 2.0**-7 * np.asarray(_convolved(largest, jnp.asarray(sizes["wide"])))
    assert (abs(compiled - told) <= bound).all()
    assert np.median(abs(compiled - told)) < 1e-5


def test_the_audit_names_the_type_and_nobody_calls_the_artifact_wrong() -> None:
    """Outputs in bfloat16 are further from XLA's than sums in another order are."""
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    model = jq.Model(lambda p, x: x @ p["w"], {"w": w}, (x,))
    compiled = jq.compile(model, "bf16")
    assert [row.format for row in compiled.audit().weights] == ["bf16"]
    glance = at_a_glance(compiled, silent)
    assert glance.found is not None
    assert glance.ruling == ""


@pytest.mark.parametrize("kind", [np.int16, np.uint32, np.complex64])
def test_what_is_no_float_is_multiplied_as_it_is(kind: type) -> None:
    x = RNG.integers(0, 30_000, (4, 16)).astype(kind)
    wide = np.int32 if kind is np.int16 else kind

    def gram(p: Any, x: jax.Array) -> jax.Array:
        return jax.lax.dot(x, x.T, preferred_element_type=wide)

    found = jq.compile(jq.Model(gram, {}, (x,)), "bf16")(x)
    exact = x.astype(wide) @ x.T.astype(wide)
    np.testing.assert_allclose(found, exact, rtol=1e-6 if kind is np.complex64 else 0)
