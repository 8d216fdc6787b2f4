"""The audit of compiled models, and of a manifest that lies about one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.driver.audit import owners
from jq.driver.compiled import CompiledModel
from jq.frontends.model import Model

SIZE = 384  # whole tiles of two, three or four vectors of any length: kernels pad the rest
RNG = np.random.default_rng(0)


def forward(params: Any, x: Any) -> Any:
    for layer in params.values():
        x = jnp.tanh(x @ layer["kernel"] + layer["bias"])
    return x


@pytest.fixture(scope="module")
def source() -> api.Source:
    params = {
        f"layer{i}": {
            "kernel": RNG.standard_normal((SIZE, SIZE), np.float32) / 10,
            "bias": RNG.standard_normal(SIZE, np.float32),
        }
        for i in range(2)
    }
    example = (RNG.standard_normal((8, SIZE), np.float32),)
    return api.trace(Model(forward, params, example, calibration=[example]))


@pytest.fixture(scope="module")
def dynamic(source: api.Source) -> CompiledModel:
    return api.compile(source, "int8-dynamic")


def test_products_that_the_compiler_makes_one_are_verified() -> None:
    def fn(w: Any, x: Any) -> Any:
        x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
        return jnp.dot(x, w, preferred_element_type=jnp.float32), jnp.dot(x, w)

    weight, example = RNG.standard_normal((64, 64), np.float32), np.ones((8, 64), np.float32)
    audit = api.compile(Model(fn, weight, (example,)), "int8-weight-only").audit()
    assert audit.verified, audit.warnings
    assert len(audit.contractions) == 2


@pytest.mark.parametrize(("pipeline", "kind"), [("float", "f32"), ("bf16", "bf16")])
def test_float_weights_of_products_that_are_one_are_told_apart(pipeline: str, kind: str) -> None:
    params = {n: RNG.standard_normal((32, 32), np.float32) for n in "qkv"}

    def fn(p, x):
        return (x @ p["q"]) * (x @ p["k"]) + x @ p["v"]

    audit = api.compile(Model(fn, params, (np.ones((8, 32), np.float32),)), pipeline).audit()
    assert audit.verified and any(c.merged_from for c in audit.contractions)
    assert {w.name: w.format for w in audit.weights} == dict.fromkeys("qkv", kind)
    stored = {w.name: w.stored_bytes for w in audit.weights}
    assert stored["q"] == stored["k"] >= stored["v"]  # panels of two may be wider than of one


def test_float32_is_bfloat16_in_kernels_alone() -> None:
    wide, meant = ("f32", "f32", "f32"), ("bf16", "bf16", "f32")
    assert owners.within(wide, meant, kernel=True) and not owners.within(wide, meant)
    assert not owners.within(wide, ("f16", "f16", "f32"), kernel=True)


KERNELS = ("layer0/kernel", "layer1/kernel")


@pytest.mark.parametrize("target", ["llvm-cpu"])
@pytest.mark.parametrize("pipeline", ["float", "int8-weight-only", "int8-dynamic", "int8-static"])
def test_what_is_claimed_is_there(source: api.Source, pipeline: str, target: str) -> None:
    audit = api.compile(source, pipeline, target).audit()
    assert audit.verified, audit.warnings
    weights = {w.name: w for w in audit.weights}
    for name in KERNELS:
        stored = SIZE * SIZE * (4 if pipeline == "float" else 1)
        assert stored <= weights[name].stored_bytes <= stored + 12 * SIZE  # scale, sums, bias
    integer = pipeline in ("int8-dynamic", "int8-static")
    expected = ("i8", "i8", "i32") if integer else ("f32", "f32", "f32")
    assert [(c.name, c.lhs, c.rhs, c.acc) for c in audit.contractions] == [
        (name, *expected) for name in KERNELS
    ]
    assert audit.float_parameter_bytes == 2 * 4 * (SIZE * SIZE + SIZE)


@pytest.mark.parametrize("shape", [(4, 4), (1, 20)], ids=str)
def test_a_model_of_one_small_weight_is_verified(shape: tuple[int, int]) -> None:
    """Kernels pad what they add to columns to whole registers: to as much as the weight."""
    params = {"w": RNG.standard_normal(shape, np.float32)}
    x = RNG.standard_normal((4, shape[0]), np.float32)
    audit = api.compile(Model(lambda p, x: x @ p["w"], params, (x,)), "int8-dynamic").audit()
    assert audit.verified, audit.warnings
    assert [(w.name, w.format) for w in audit.weights] == [("w", "int8")]


def test_a_manifest_that_lies_is_found_out(source: api.Source, dynamic: CompiledModel) -> None:
    kept_float = api.compile(source, "float")
    lie = replace(dynamic, programs=kept_float.programs)
    audit = lie.audit()
    assert not audit.verified
    assert {w.format for w in audit.weights} == {"f32"}
    assert {c.acc for c in audit.contractions} <= {"f32", "?"}


@pytest.mark.parametrize(("pipeline", "kind"), [("float", "f32"), ("bf16", "bf16")])
def test_float_weights_are_found_beside_biases(pipeline: str, kind: str) -> None:
    """A kernel stores a bias under the name of its product."""
    params = {n: RNG.standard_normal((32, 32)).astype(np.float32) for n in "vo"}
    params["bias"] = RNG.standard_normal(32).astype(np.float32)

    def fn(p, x):
        return x @ p["v"] @ p["o"] + p["bias"]

    x = RNG.standard_normal((8, 32)).astype(np.float32)
    audit = api.compile(Model(fn, params, (x,)), pipeline).audit()
    found = {w.name: w.format for w in audit.weights}
    assert audit.verified and found == {**dict.fromkeys("vo", kind), "bias": "f32"}


def test_both_products_of_an_attention_kernel_are_seen():
    """The second one is quantized for the next product inside the kernel: two names, one call."""
    rng = np.random.default_rng(0)
    params = {
        n: rng.standard_normal(s).astype(np.float32) / 4
        for n, s in {"q": (2, 16, 8), "k": (2, 16, 8), "v": (2, 16, 8), "o": (2, 8, 16)}.items()
    }

    def fn(p, x):
        q, k, v = (jnp.einsum("btd,hde->bhte", x, p[n]) for n in "qkv")
        a = jax.nn.softmax(jnp.einsum("bhte,bhse->bhts", q, k) / 8**0.5)
        return jnp.einsum("bhts,bhse,hed->btd", a, v, p["o"])

    x = rng.standard_normal((3, 6, 16)).astype(np.float32)
    model = Model(fn, params, (x,), calibration=[(x,)])
    found = api.compile(model, "int8-static").audit()
    assert {(c.lhs, c.rhs, c.acc) for c in found.contractions} == {("i8", "i8", "i32")}
    assert len(found.contractions) == 6 and found.verified


def test_weights_that_a_loop_joins_are_one_integer_weight() -> None:
    """As in Flax's OptimizedLSTMCell: the product was traced before there was a weight."""
    rng = np.random.default_rng(0)
    params = {name: rng.standard_normal((32, 32)).astype(np.float32) for name in "ab"}

    def fn(p: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(row @ jnp.concatenate([p["a"], p["b"]], 1))[:, :32] + h
            return h, h

        return jax.lax.scan(step, jnp.zeros((2, 32)), x)[1]

    x = rng.standard_normal((5, 2, 32)).astype(np.float32)
    audit = api.compile(Model(fn, params, (x,)), "int8-dynamic").audit()
    assert audit.verified
    (product,) = audit.contractions
    assert (product.lhs, product.rhs, product.acc) == ("i8", "i8", "i32")
    assert sum(w.stored_bytes for w in audit.weights) < 2 * 32 * 32 * 1.5


@pytest.mark.parametrize("pipeline", ["int4-weight-only", "int8-weight-only"])
def test_weights_of_equal_numbers(pipeline: str) -> None:
    """All codes are one number, which the program has in place of them where it fills its packing;
    kernels keep such codes in two bits."""
    x = np.ones((8, 32), np.float32)
    for columns, number in ((48, 1.0), (64, 0.0), (48, -0.5)):
        params = {"w": np.full((32, columns), number, np.float32)}
        model = Model(lambda p, x: x @ p["w"], params, (x,))
        compiled = api.compile(model, pipeline)
        audit = compiled.audit()
        assert audit.verified, audit.warnings
        lie = replace(compiled, programs=api.compile(model, "float").programs)
        assert not lie.audit().verified  # where it is one number as well


@pytest.mark.parametrize("shape", [(64, 24), (3, 3, 16, 24)], ids=["product", "convolution"])
@pytest.mark.parametrize("target", ["x86-64-v3", "avx512_vnni"])
def test_codes_of_16_bits_as_two_digits_are_verified(target: str, shape: tuple[int, ...]) -> None:
    """A kernel multiplies the bytes that they are made of."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(shape).astype(np.float32)

    def fn(p: Any, x: Any) -> Any:
        if p.ndim == 2:
            return x @ p
        kinds = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, p, (1, 1), "SAME", dimension_numbers=kinds)

    x = rng.standard_normal((48, 64) if w.ndim == 2 else (1, 8, 8, 16)).astype(np.float32)
    model = jq.Model(fn, w, (x,), calibration=[(x,)])
    settings = {"recovery": False}
    compiled = jq.compile(model, "int8x16-static", target, measure=False, settings=settings)
    assert compiled.manifest.ops[0]["kernel"]
    found = compiled.audit()
    assert found.verified, found.warnings
    assert {(c.lhs, c.rhs, c.acc) for c in found.contractions} == {("i8", "i8", "i32")}
