"""Stored weights in models: kernels where they fit, one copy of the data, the same numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.system.folders import data_file
from jq.kernels import detect, get_isa
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32), dtype)


def heads(p, x):  # [B, D] with [D, H, F], then back with [H, F, D]
    return jnp.einsum("bhf,hfd->bd", jnp.einsum("bd,dhf->bhf", x, p["in"]), p["out"])


def tied(p, ids):
    return jnp.tanh(p["table"][ids]) @ p["table"].T


def scan(p, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["layers"])[0]


def convolution(p, x):
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims)


def slices(p, x):  # parts of one weight, along either axis
    return x @ p["w"][:, :32], x @ p["w"][:, 32:], x[:, :64] @ p["w"][32:]


def filters(p, x):
    """A filter whose channels blocks do not divide; few channels; NCHW with uneven padding, strides
    and dilation; a transposed convolution."""
    ragged = convolution({"w": p["ragged"]}, x)
    stem = convolution({"w": p["stem"]}, x[..., :3])
    window = jax.lax.conv_general_dilated(
        jnp.moveaxis(x, -1, 1)[:, :32],
        p["window"],
        (2, 1),
        ((1, 2), (0, 3)),
        rhs_dilation=(1, 2),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )
    names = ("NWC", "WIO", "NWC")
    up = jax.lax.conv_transpose(x[:, 0], p["up"], (2,), "SAME", dimension_numbers=names)
    return ragged, stem, window, up


FILTERS = {
    "ragged": array(3, 3, 48, 20),
    "stem": array(5, 5, 3, 16),
    "window": array(20, 32, 3, 2),
    "up": array(3, 48, 16),
}


def twice(p, x):  # the same weight, contracted along either axis
    return (x @ p["w"]) @ p["w"].T


MODELS = {
    "dense": (lambda p, x: x @ p["w"], {"w": array(96, 64)}, (array(3, 96),)),
    "transposed": (lambda p, x: x @ p["w"].T, {"w": array(64, 96)}, (array(5, 96),)),
    "odd": (lambda p, x: x @ p["w"], {"w": array(70, 33)}, (array(3, 70),)),
    "vector": (lambda p, x: x @ p["w"], {"w": array(96, 64)}, (array(96),)),
    "left": (lambda p, x: p["w"] @ x, {"w": array(64, 96)}, (array(96, 5),)),
    "left_first": (lambda p, x: p["w"].T @ x, {"w": array(96, 64)}, (array(96, 5),)),
    "heads": (heads, {"in": array(64, 4, 16), "out": array(4, 16, 64)}, (array(6, 64),)),
    "tied": (tied, {"table": array(80, 64)}, (np.array([[1, 79, 3]], np.int32),)),
    "scan": (scan, {"layers": array(3, 64, 64) * 0.1}, (array(2, 64),)),
    "filters": (filters, FILTERS, (array(2, 5, 4, 48),)),
    "slices": (slices, {"w": array(96, 64)}, (array(3, 96),)),
    "twice": (twice, {"w": array(64, 96)}, (array(2, 64),)),
    "bf16": (
        lambda p, x: x @ p["w"],
        {"w": array(96, 64, dtype=jnp.bfloat16)},
        (array(3, 96, dtype=jnp.bfloat16),),
    ),
}
PIPELINES = ["int8", "int4", "fp8", "mxint8", "mxfp8", "mxfp4"]


def compiled(name, pipeline, **settings):
    fn, params, inputs = MODELS[name]
    model = jq.Model(fn, params, inputs)
    chosen = {"min_elements": 1, **settings}
    return model, jq.compile(model, pipeline, settings=chosen)


def check(model, artifact, tolerance=2e-6):
    """IREE's result against the `integer` level on XLA, and a clean audit."""
    wanted = evaluated(artifact.levels["integer"], *map(np.asarray, model.example_inputs))
    results = artifact.call_flat([np.asarray(x) for x in model.example_inputs])
    for want, got in zip(wanted, results, strict=True):
        want, got = want.astype(np.float64), got.astype(np.float64)
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    audit = artifact.audit()
    assert audit.verified, audit.warnings
    return audit


@pytest.mark.parametrize("name", [n for n in MODELS if n != "bf16"])
def test_int4(name):
    model, artifact = compiled(name, "int4-weight-only")
    audit = check(model, artifact)
    for weight in audit.weights:
        parts = artifact.manifest.encodings[weight.name]["parts"].values()
        planned = sum(math.prod(p["shape"]) * np.dtype(p["dtype"]).itemsize for p in parts)
        # Zero points that no longer lie in pairs; rows and columns, both stored.
        extra = {"tied": 1.03, "slices": 1.5}.get(name, 1)
        assert weight.stored_bytes <= planned * extra, weight
    products = [op for op in artifact.manifest.ops if op["op"] != "gather"]
    assert all(op["kernel"] or name == "twice" for op in products), products


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline(pipeline):
    model, artifact = compiled("dense", f"{pipeline}-weight-only")
    check(model, artifact)
    (op,) = artifact.manifest.ops
    assert op["decision"] == "weight-only" and op["kernel"].startswith(("decode_dot", "gemv"))


def test_asymmetric_zero_points_are_packed():
    model, artifact = compiled("dense", "int4-weight-only", **{"weights.scheme": "asymmetric"})
    (weight,) = check(model, artifact).weights
    assert weight.stored_bytes <= 0.585 * 96 * 64


def test_bf16_models():
    model, artifact = compiled("bf16", "int4-weight-only")
    check(model, artifact, tolerance=2**-7)  # the weight is not rounded to bfloat16 on the way


def test_without_kernels_the_result_is_the_same(tmp_path):
    target = tmp_path / "plain.toml"
    target.write_text(
        'flags = ["--iree-hal-target-device=local", '
        '"--iree-hal-local-target-device-backends=llvm-cpu", '
        '"--iree-llvmcpu-target-cpu=host"]\n'
    )
    fn, params, inputs = MODELS["dense"]
    model = jq.Model(fn, params, inputs)
    artifact = jq.compile(model, "mxfp4-weight-only", str(target))
    check(model, artifact)
    assert artifact.manifest.ops[0]["kernel"] is None


def test_the_audit_sees_a_weight_that_is_decoded_to_memory(tmp_path):
    """Without kernels IREE writes the floats of the weight to memory; with them it does not."""
    target = tmp_path / "plain.toml"
    text = data_file("targets", "llvm-cpu").read_text().replace('kernels = "host"', "")
    target.write_text(text)
    fn, params, inputs = MODELS["dense"]
    model = jq.Model(fn, params, inputs)
    decoded = "w is decoded to f32 in memory at every call"
    assert decoded in jq.compile(model, "mxfp4-weight-only", str(target)).audit().warnings
    assert decoded not in jq.compile(model, "mxfp4-weight-only").audit().warnings


@pytest.mark.skipif(get_isa(detect().name).dot.group != 4, reason="no products of four codes")
@pytest.mark.parametrize("pipeline", ["int8", "int4"])
def test_few_rows_read_packed_weights(pipeline):
    """Unless something else reads them too, or they came as they are stored."""
    artifact = compiled("dense", f"{pipeline}-weight-only")[1]
    assert artifact.manifest.ops[0]["kernel"].startswith("gemv")
    shared = compiled("tied", f"{pipeline}-weight-only")[1]
    kernels = [op["kernel"] for op in shared.manifest.ops if op["op"] == "dot_general"]
    assert all(k.startswith("decode_dot") for k in kernels)


def followed(p, x):
    return jax.nn.relu(convolution(p, x) + p["b"]) + x


def filters_first(p, x):
    dims = ("NHWC", "HWIO", "NCHW")
    y = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims)
    return jax.nn.relu(y + p["b"][:, None, None])


@pytest.mark.parametrize(("fn", "goes"), [(followed, True), (filters_first, False)])
def test_what_follows_a_convolution_goes_with_it(fn, goes):
    """Bias, activation and residual sum are steps of its kernel; not where filters are not last."""
    params, x = {"w": array(3, 3, 32, 32), "b": array(32)}, array(2, 7, 6, 32)
    model = jq.Model(fn, params, (x,))
    artifact = jq.compile(model, "int8-weight-only", settings={"float_type": "float32"})
    check(model, artifact)
    ops = {op.operation.name for op in artifact.levels["target"].walk()}
    assert ({"stablehlo.add", "stablehlo.maximum"} & ops == set()) == goes, ops


def alone(p, x):
    """Every filter reads one channel: followed by a bias; in strides, of fewer channels than a
    vector has; channels first, dilated."""

    def of(x, w, strides, padding, dilation=(1, 1), dims=("NHWC", "HWIO", "NHWC")):
        groups = x.shape[dims[0].index("C")]
        how = {"rhs_dilation": dilation, "feature_group_count": groups}
        return jax.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=dims, **how)

    first = jax.nn.relu(of(x, p["first"], (1, 1), "SAME") + p["b"])
    few = of(x[..., :5], p["few"], (2, 1), ((0, 1), (2, 0)))
    order = ("NCHW", "OIHW", "NCHW")
    return first, few, of(jnp.moveaxis(x, -1, 1), p["last"], (1, 2), "VALID", (1, 2), order)


@pytest.mark.parametrize("pipeline", ["int8", "int4", "fp8"])
def test_depthwise_filters_are_decoded_for_their_kernel(pipeline):
    params = {
        "first": array(3, 3, 1, 40),
        "b": array(40),
        "few": array(3, 2, 1, 5),
        "last": array(40, 1, 2, 3),
    }
    model = jq.Model(alone, params, (array(2, 7, 9, 40),))
    artifact = jq.compile(model, f"{pipeline}-weight-only", settings={"min_elements": 1})
    check(model, artifact)
    ops = artifact.manifest.ops
    assert [op["decision"] for op in ops] == ["weight-only"] * 3
    assert all(op["kernel"].startswith("depthwise") for op in ops), ops
