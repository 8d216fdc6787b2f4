"""Products and convolutions of integer-only programs in kernels: the bits of the integer level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.ir.build import string_attr
from jq.ir.decisions import facts_of
from jq.ir.oracle.interpreter import interpret
from jq.kernels import (
    ATTRIBUTE,
    Dequantize,
    Kernel,
    Quantize,
    QuantizeRows,
    Rescale,
    RoundToCodes,
    RowProgram,
    WideQuantize,
    detect,
)
from jq.passes.kernels._kernel import declarations
from jq.passes.kernels.between import _region
from tests.passes.test_text import FOLDER, output
from tests.support.programs import assert_same_bits, evaluated, run_iree

RNG = np.random.default_rng(0)
NHWC = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x, w, groups=1, stride=1):
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=NHWC, feature_group_count=groups
    )


PARAMS = {
    "conv": normal(3, 3, 3, 16),
    "deep": normal(3, 3, 1, 16),
    "point": normal(1, 1, 16, 24),
    "heads": normal(24, 4, 6),
    "join": normal(4, 6, 20),
    "rows": normal(5, 25),
    "huge": normal(20, 9) * 3e4,
    "bias": normal(16),
}


def network(p, x):
    x = jax.nn.relu6(conv(x, p["conv"], stride=2) + p["bias"])
    x = jax.nn.relu(conv(x, p["deep"], groups=16))
    x = conv(x, p["point"]).reshape(1, 25, 24)
    x = jnp.einsum("bqd,dnh->bqnh", x, p["heads"])
    x = jnp.einsum("bqnh,nhd->bqd", x, p["join"])
    x = p["rows"] @ x[0]
    return x @ p["huge"]


@pytest.mark.parametrize("rounding", ["double", "single", "float32"])
def test_every_form_has_a_kernel_with_the_bits_of_the_integer_level(rounding, tmp_path) -> None:
    target = tmp_path / "target.toml"
    target.write_text(f'kernels = "host"\n[device]\nrounding = "{rounding}"\n')
    batches = [(normal(1, 10, 10, 3),) for _ in range(2)]
    model = jq.Model(network, PARAMS, batches[0], calibration=batches)
    levels = api.rewrite(model, pipeline="int8-static-integer-only", target=str(target))
    program = levels["target"]
    assert len(facts_of(program, "kernel")) == 7
    assert not facts_of(program, "no_kernel")
    texts = [string_attr(op, ATTRIBUTE) or "" for op in declarations(program).values()]
    found = [Kernel.from_json(text) for text in texts]
    assert any(isinstance(kernel, QuantizeRows) for kernel in found)  # of the input
    for kernel in found:
        if isinstance(kernel, RowProgram | QuantizeRows):
            continue  # lines of the first are the ops of the level
        if rounding == "float32":
            first, last = kernel.epilogue
            assert isinstance(first, Dequantize) and isinstance(last, Quantize | RoundToCodes)
            continue
        (step,) = kernel.epilogue
        assert isinstance(step, Rescale) and step.rounding == rounding
    for (x,) in batches:
        (want,) = evaluated(levels["integer"], x)
        (got,) = run_iree(program, [x])
        assert_same_bits(got, want, "a network")


@pytest.mark.parametrize(("bits", "step"), [(8, Quantize), (16, WideQuantize)])
def test_large_factors_of_float32_saturate(tmp_path, bits: int, step: type) -> None:
    """A sum that could leave int32 once it is rescaled is bounded as a float."""
    target = tmp_path / "target.toml"
    target.write_text('kernels = "host"\n[device]\nrounding = "float32"\n')
    batches = [(normal(3, 20),)]
    model = jq.Model(
        lambda p, x: jnp.clip(x @ p["huge"], -1e-5, 1e-5), PARAMS, batches[0], calibration=batches
    )
    levels = api.rewrite(
        model,
        pipeline="int8-static-integer-only",
        target=str(target),
        settings={"activations.residual": f"int{bits}"},
    )
    texts = [string_attr(op, ATTRIBUTE) or "" for op in declarations(levels["target"]).values()]
    (kernel,) = (k for k in map(Kernel.from_json, texts) if not isinstance(k, QuantizeRows))
    assert type(kernel.epilogue[-1]) is step
    (want,) = evaluated(levels["integer"], *batches[0])
    assert_same_bits(run_iree(levels["target"], [*batches[0]])[0], want, "large factors")


ATTENTION = {
    **{name: normal(32, 32) / 5 for name in ("q", "k", "v", "out")},
    "up": normal(32, 70) / 5,
    "down": normal(70, 32) / 5,
    "gamma": 1 + normal(32) / 9,
}


def encoder(p, x, mask):
    """Attention, a residual sum, a normalization and functions, as transformers have them."""

    def heads(name):
        return (x @ p[name]).reshape(2, 9, 4, 8)

    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("q"), heads("k")) / 3 + mask[:, None, None]
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads("v"))
    x = x + mixed.reshape(2, 9, 32) @ p["out"]
    centered = x - x.mean(-1, keepdims=True)
    x = p["gamma"] * centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


@pytest.mark.parametrize(("kernels", "rounding"), [("host", "double"), ("avx2", "single")])
def test_an_encoder_is_kernels_with_the_bits_of_the_integer_level(kernels, rounding, tmp_path):
    """Products of two activations, softmax with a mask, sums, normalization, tables of 16 bits."""
    target = tmp_path / "target.toml"
    target.write_text(f'kernels = "{kernels}"\n[device]\nrounding = "{rounding}"\n')
    mask = np.where(np.arange(9) < 7, 0, -1e4).astype(np.float32)[None].repeat(2, 0)
    batches = [(normal(2, 9, 32), mask) for _ in range(3)]
    model = jq.Model(encoder, ATTENTION, batches[0], calibration=batches)
    levels = api.rewrite(model, pipeline="int8-static-integer-only", target=str(target))
    program = levels["target"]
    assert len(facts_of(program, "kernel")) == 8 and not facts_of(program, "no_kernel")
    found = [
        Kernel.from_json(string_attr(op, ATTRIBUTE) or "").family
        for op in declarations(program).values()
    ]
    assert found.count("pack_values") == 2 and found.count("row_program") >= 4
    for given in batches:
        (want,) = interpret(levels["integer"], *given)  # XLA rounds its first codes otherwise
        (got,) = run_iree(program, list(given))
        assert_same_bits(got, want, "an encoder")


def wide(p, x):
    """All forms of contractions, with sums that do not fit into 32 bits."""
    x = jax.nn.relu(conv(x, p["conv"], stride=2) + p["bias"])
    x = jax.nn.relu(conv(x, p["deep"], groups=16))
    x = conv(x, p["point"]).reshape(1, 25, 24)
    x = jnp.einsum("bqd,dnh->bqnh", x, p["heads"])
    x = jnp.einsum("bqnh,nhd->bqd", x, p["join"])
    return (p["rows"] @ x[0]) @ p["deepest"]


@pytest.mark.parametrize("kernels", ["host", *["avx2"] * (detect().name != "avx2")])
def test_codes_of_16_bits_are_multiplied_as_two_digits(kernels, tmp_path) -> None:
    target = tmp_path / "target.toml"
    target.write_text(f'kernels = "{kernels}"\n[device]\nproducts = ["int16 x int8"]\n')
    params = PARAMS | {"deepest": np.sign(normal(20, 9)) + normal(20, 9) / 50}
    batches = [(normal(1, 10, 10, 3),) for _ in range(2)]
    model = jq.Model(wide, params, batches[0], calibration=batches)
    levels = api.rewrite(
        model, pipeline="int8x16-static", target=str(target), settings=["recovery=false"]
    )
    assert len(facts_of(levels["target"], "kernel")) == 7
    for (x,) in [*batches, (np.sign(normal(1, 10, 10, 3)) * 9,)]:
        (want,) = interpret(levels["integer"], x)
        (got,) = run_iree(levels["target"], [x])
        assert_same_bits(got, want, "digits")


def residuals(p, x):
    """Sums that are read by the next sum and by the next convolution."""
    x = conv(x, p["conv"])
    for name in ("one", "two"):
        x = x + conv(jax.nn.relu(x), p[name])
    return conv(jax.nn.relu(x), p["point"])


def test_a_sum_is_computed_once_for_all_its_codes():
    params = PARAMS | {name: normal(3, 3, 16, 16) for name in ("one", "two")}
    batches = [(normal(1, 8, 8, 3),) for _ in range(2)]
    model = jq.Model(residuals, params, batches[0], calibration=batches)
    levels = api.rewrite(model, pipeline="int8-static-integer-only")
    found = [
        Kernel.from_json(string_attr(op, ATTRIBUTE) or "")
        for op in declarations(levels["target"]).values()
    ]
    sums = [
        kernel for kernel in found if isinstance(kernel, RowProgram) and len(kernel.sources) > 2
    ]
    assert sorted(len(kernel.results) for kernel in sums) == [1, 2]
    assert all(line.op != "multiply" for kernel in sums for line in kernel.lines)
    assert "stablehlo.shift" not in levels["target"].text()  # nothing is computed beside them
    assert levels["target"].text().count("stablehlo.xor") <= 1  # codes are stored as they are read
    for (x,) in batches:
        (want,) = interpret(levels["integer"], x)
        (got,) = run_iree(levels["target"], [x])
        assert_same_bits(got, want, "residual sums")


def test_a_region_that_is_too_deep_reads_what_is_before_it(monkeypatch):
    monkeypatch.setattr(_region, "DEEP", 8)
    made = output((FOLDER / "kernel_integer_rows.mlir").read_text())
    assert "call @jq_row_program" in made and "stablehlo.gather" in made


def test_each_of_several_results_may_be_as_deep(monkeypatch):
    """Operands of a kernel come before it, whichever of its results needs them."""
    monkeypatch.setattr(_region, "DEEP", 8)
    wide, narrow = "tensor<4x40xi32>", "tensor<4x40xi8>"
    lines = ["// RUN: kernel-integer-rows", "// KERNELS: avx2"]
    lines.append(f"func.func @main(%x: {narrow}) -> ({narrow}, {narrow}) {{")
    lines.append(f"%s = stablehlo.constant dense<4> : {wide}")
    for i in "ab":
        lines += [
            f"%{i}0 = stablehlo.convert %x : ({narrow}) -> {wide}",
            f"%{i}1 = stablehlo.constant dense<{ord(i) * 11}> : {wide}",
            f"%{i}2 = stablehlo.multiply %{i}0, %{i}1 : {wide}",
            f"%{i}3 = stablehlo.add %{i}2, %{i}1 : {wide}",
            f"%{i}4 = stablehlo.shift_right_arithmetic %{i}3, %s : {wide}",
            f"%{i} = stablehlo.convert %{i}4 : ({wide}) -> {narrow}",
        ]
    made = output("\n".join([*lines, f"return %a, %b : {narrow}, {narrow}", "}"]))
    assert made.count("call @jq_row_program") == 1 and "stablehlo.multiply" not in made
