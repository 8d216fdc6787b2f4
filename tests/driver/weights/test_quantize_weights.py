"""`quantize_weights`: every refusal, what is skipped and why, and the results in two oracles."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.driver.weights.module import SkippedWeight
from jq.driver.weights.quantize import quantize_weights
from jq.formats import get_format
from jq.formats.tensor import QuantizedTensor
from jq.ir import ir, parse_module
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)


def model(k=64, n=32, dtype=np.float32) -> jq.Model:
    params = {"dense": {"kernel": jnp.asarray(RNG.standard_normal((k, n)), dtype)}}
    x = np.asarray(RNG.standard_normal((3, k)), dtype)
    return jq.Model(lambda p, x: x @ p["dense"]["kernel"], params, (x,))


def text(k=64, n=32, batch="3") -> str:
    w = RNG.standard_normal((k, n)).astype(np.float32)
    return f"""module {{
  func.func @main(%x: tensor<{batch}x{k}xf32>) -> tensor<{batch}x{n}xf32> {{
    %w = stablehlo.constant dense<"0x{w.tobytes().hex().upper()}"> : tensor<{k}x{n}xf32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<{batch}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{batch}x{n}xf32>
    return %y : tensor<{batch}x{n}xf32>
  }}
}}"""


REFUSED = [
    ({"dtype": "int16"}, "unknown dtype 'int16'"),
    ({"dtype": "mxfp4"}, "unknown dtype 'mxfp4'"),
    ({"qscheme": "affine"}, "unknown qscheme 'affine'"),
    ({"granularity": "per-row"}, "unknown granularity 'per-row'"),
    ({"block_size": 0}, "block_size must be an integer of at least 1, got 0"),
    ({"weight_num_threshold": -1}, "weight_num_threshold must be an integer of at least 0, got -1"),
    ({"dtype": "float8_e4m3fn", "qscheme": "asymmetric"}, "float8_e4m3fn has no asymmetric scheme"),
    (
        {"dtype": "float4_e2m1fn", "qscheme": "asymmetric", "granularity": "per-block"},
        "float4_e2m1fn has no asymmetric scheme",
    ),
    (
        {"dtype": "int8", "scale_dtype": "float8_e8m0fnu"},
        "scale_dtype is for float8 weights, dtype is int8",
    ),
    (
        {"dtype": "float4_e2m1fn", "granularity": "per-block", "scale_dtype": "float8_e8m0fnu"},
        "the scale of float4_e2m1fn is always float8_e8m0fnu",
    ),
    ({"dtype": "float8_e5m2", "scale_dtype": "float16"}, "unknown scale_dtype 'float16'"),
    (
        {"dtype": "float4_e2m1fn"},
        "float4_e2m1fn needs granularity 'per-block' with block_size 32, got 'per-channel' with 32",
    ),
    (
        {"dtype": "float4_e2m1fn", "granularity": "per-block", "block_size": 16},
        "float4_e2m1fn needs granularity 'per-block' with block_size 32, got 'per-block' with 16",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
@pytest.mark.parametrize("target", [model(), text()], ids=["model", "module"])
def test_refusals(options, message, target):
    with pytest.raises(jq.UserError) as error:
        quantize_weights(target, **options)
    assert error.value.message == message


def test_in_place_is_for_modules():
    for target in (model(), text()):
        with pytest.raises(jq.UserError, match="in_place=True is for modules"):
            quantize_weights(target, in_place=True)


DTYPES = [
    ("int8", "per-channel", {}),
    ("int8", "per_tensor", {"qscheme": "asymmetric"}),
    ("int4", "per-block", {"block_size": 16}),
    ("uint4", "per-block", {"qscheme": "asymmetric"}),
    ("int2", "per-channel", {}),
    (jnp.float8_e4m3fn, "per-channel", {}),
    (jnp.float8_e5m2, "per-tensor", {}),
    ("float8_e4m3fn", "per-block", {"scale_dtype": jnp.float8_e8m0fnu}),
    ("float4_e2m1fn", "per-block", {}),
]


@pytest.mark.parametrize(("dtype", "granularity", "more"), DTYPES)
def test_model_and_module_hold_the_same_data(dtype, granularity, more):
    given = model()
    kernel = np.asarray(given.params["dense"]["kernel"])
    quantized = quantize_weights(given, dtype, granularity=granularity, **more)
    tensor = quantized.params["dense"]["kernel"]
    assert isinstance(tensor, QuantizedTensor) and tensor.shape == kernel.shape
    (x,) = given.example_inputs
    want = x @ tensor.decode()
    (got,) = evaluated(jq.trace(quantized).program, x)
    assert np.allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())

    module = parse_module(text())
    source = jq.trace(module).program
    low = quantize_weights(module, dtype, granularity=granularity, **more)
    program = jq.trace(low).program
    (name,) = program.encodings
    assert program.encodings[name]["format"] == tensor.encoding.format
    assert set(program.weights) == {f"{name}:{part}" for part in tensor.parts}
    (weight,) = source.weights.values()
    parts = get_format(tensor.encoding.format).encode(weight, tensor.encoding)
    for part, array in parts.items():
        assert np.array_equal(program.weights[f"{name}:{part}"], array)


def test_bf16_scales_have_the_weights_type():
    tensor = quantize_weights(model(dtype=jnp.bfloat16), "float8_e4m3fn").params["dense"]["kernel"]
    assert tensor.parts["scale"].dtype == jnp.bfloat16


def test_in_place_changes_the_module_and_a_copy_does_not():
    module = parse_module(text())
    before = str(module)
    assert str(quantize_weights(module)) != before == str(module)
    assert quantize_weights(module, in_place=True) is module
    assert "jq.encodings" in module.operation.attributes
    assert module.operation.verify()


def test_a_module_of_another_context():
    x = jnp.ones((2, 64))
    w = np.asarray(RNG.standard_normal((64, 64)), np.float32)
    module = jax.jit(lambda x: x @ w).lower(x).compiler_ir("stablehlo")
    assert quantize_weights(module, in_place=True) is module
    assert "tensor<64x64xi8>" in str(module)
    program = jq.trace(module).program
    assert [e["format"] for e in program.encodings.values()] == ["int8"]


def test_small_weights_are_skipped_and_named():
    with pytest.warns(SkippedWeight, match=r"dense/kernel.* 2048 elements, below the threshold"):
        same = quantize_weights(model(), weight_num_threshold=2049)
    assert not isinstance(same.params["dense"]["kernel"], QuantizedTensor)
    with pytest.warns(SkippedWeight, match=r"below the threshold of 2049"):
        quantize_weights(text(), weight_num_threshold=2049)


def test_a_block_that_does_not_divide_is_skipped():
    with pytest.warns(SkippedWeight, match=r"block 32 does not divide axis 0 of \(70, 32\)"):
        quantize_weights(model(70), "int4", granularity="per-block")


def test_integer_and_absent_weights_are_skipped():
    fn = lambda p, x: (x @ x.T, x.astype(jnp.int32) @ p["w"])  # noqa: E731
    params = {"w": np.ones((64, 64), np.int32)}
    given = jq.Model(fn, params, (np.ones((3, 64), np.float32),))
    with pytest.warns(SkippedWeight) as caught:
        quantize_weights(given)
    reasons = " ".join(str(w.message) for w in caught)
    assert "no operand is a parameter" in reasons and "it is int32 already" in reasons


def scaled(p, x):
    """By a number, by rows and columns, after a transpose."""
    w = p["w"] * p["rows"][:, None] * p["columns"]
    return x @ w, x @ (p["v"].T / 4 * p["rows"]).T, x @ (p["w"] * p["mask"])


def test_a_scaled_weight_is_quantized_and_a_mask_is_none():
    """The weight before it is scaled, and it stays stored; all numbers of a mask are its own."""
    shapes = {"w": (64, 32), "v": (64, 32), "rows": 64, "columns": 32, "mask": (64, 32)}
    params = {k: RNG.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    with pytest.warns(SkippedWeight, match="no operand is a parameter"):
        given = quantize_weights(jq.Model(scaled, params, (x,)), "int4", granularity="per-block")
    stored = {k: np.asarray(given.params[k].decode()) for k in "wv"}
    assert not isinstance(given.params["mask"], QuantizedTensor)
    want = scaled(params | stored, x)
    compiled = jq.compile(given, "float")
    for ours, theirs in zip(compiled(x), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    formats = {w.name: w.format for w in compiled.audit().weights}
    assert formats["v"] == formats["w"] == "int4"


def test_a_scaled_constant_of_a_module_is_quantized():
    scaled = """%c = stablehlo.constant dense<0.5> : tensor<64x32xf32>
      %s = stablehlo.multiply %c, %w : tensor<64x32xf32>
      %y = stablehlo.dot_general %x, %s"""
    module = quantize_weights(text().replace("%y = stablehlo.dot_general %x, %w", scaled))
    (dequantized,) = [o for o in str(module).splitlines() if 'composite "jq.dequantize"' in o]
    assert "tensor<64x32xi8>" in dequantized and "multiply" in str(module)


def test_dynamic_shapes_are_skipped():
    with pytest.warns(SkippedWeight, match="dynamic shape"):
        quantize_weights(text(batch="?"))


def test_what_is_quantized_is_not_quantized_again():
    once = quantize_weights(model())
    with pytest.warns(SkippedWeight, match="it is int8 already"):
        twice = quantize_weights(once, "int4")
    assert twice.params["dense"]["kernel"] is once.params["dense"]["kernel"]


def test_a_listed_encoding_that_the_data_contradict_is_refused():
    low = str(quantize_weights(text()))
    assert jq.trace(parse_module(low)).program.encodings
    wrong = low.replace("block = array<i64: 0, 1>", "block = array<i64: 0, 0>", 1)
    with pytest.raises(jq.UserError, match="does not list it as it is encoded"):
        jq.trace(parse_module(wrong))


@pytest.mark.parametrize("part", ["64x128xi8", "1x128xf32"])
def test_data_that_were_changed_are_refused(part):
    low = str(quantize_weights(text(n=128)))
    assert jq.trace(parse_module(low)).program.encodings
    last = re.search(rf'"0x[0-9A-F]+([0-9A-F])"> : tensor<{part}>', low).start(1)
    changed = low[:last] + ("5" if low[last] != "5" else "4") + low[last + 1 :]
    with pytest.raises(jq.UserError, match="not those that the module lists .*weight"):
        jq.trace(parse_module(changed))


def test_a_scale_that_is_no_number_is_refused():
    """Also in a module without digests."""
    low = re.sub(r', sha256 = "\w+"|sha256 = "\w+", ', "", str(quantize_weights(text(n=128))))
    assert jq.trace(parse_module(low)).program.encodings
    last = re.search(r'"0x[0-9A-F]+([0-9A-F]{8})"> : tensor<1x128xf32>', low).start(1)
    damaged = low[:last] + "0000C07F" + low[last + 8 :]
    with pytest.raises(jq.UserError, match="decodes to NaN or infinity"):
        jq.trace(parse_module(damaged))


def test_a_weight_that_is_listed_and_not_there_is_refused():
    low = str(quantize_weights(text()))
    (entry,) = re.findall(r'"dot_general 1/weight" = ({.*?})}}? {$', low, re.MULTILINE)
    more = low.replace("jq.encodings = {", f"jq.encodings = {{gone = {entry}, ", 1)
    with pytest.raises(jq.UserError, match="lists it but does not hold it"):
        jq.trace(parse_module(more))


def test_compiles():
    given = model(64, 64)
    compiled = jq.compile(quantize_weights(given, "int8"), "float")
    audit = compiled.audit()
    assert audit.verified and audit.weights[0].format == "int8"
    assert audit.weights[0].stored_bytes == 64 * 64 + 4 * 64
    module = quantize_weights(text(64, 64), "int8")
    assert isinstance(module, ir.Module)
    assert jq.compile(jq.trace(module), "float").audit().weights[0].format == "int8"


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("format", ["int8", "int4", "float8_e4m3fn"])
def test_a_quantized_model_computes_in_the_type_it_had(format, dtype) -> None:
    quantized = quantize_weights(model(dtype=dtype), format)
    tensor = quantized.params["dense"]["kernel"]
    assert tensor.dtype == tensor.decode().dtype == dtype
    before, after = (jq.trace(m).program.outputs for m in (model(dtype=dtype), quantized))
    assert [o.dtype for o in before] == [o.dtype for o in after]
