"""Kernels in programs: the target level against the integer level, and what is left alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.progress import Stages
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import calibrate_job
from jq.frontends.source import trace
from jq.ir.decisions import facts_of
from jq.ir.oracle.interpreter import interpret
from jq.iree.compiler import compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from jq.kernels import Clamp, Gelu, Silu, detect
from jq.passes.base import PassContext
from jq.passes.functions import find_activation, find_normalization
from jq.passes.pipeline import make_plan, rewrite
from tests.kernels.strategies import HERE
from tests.support.steps import moved

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Both:
    """A model at both levels, on the same inputs. Weights are rounded to the nearest: what recovery
    would make of them is no kernel's affair."""

    def __init__(
        self, fn, params, inputs, pipeline="int8-dynamic", target="llvm-cpu", seen=None, **settings
    ) -> None:
        """`seen`: inputs to calibrate with, if not those."""
        model = jq.Model(fn, params, inputs, calibration=[inputs if seen is None else seen])
        job = prepare_job(model, Request(pipeline, target, {"recovery": False} | settings))
        ranges = calibrate_job(job, Stages()) if job.needs_ranges else None
        plan = make_plan(job.program, job.pipeline, job.target, ranges)
        self.cx = PassContext(plan, job.pipeline.settings, job.target, job.data)
        self.levels = rewrite(job.program, job.pipeline, self.cx)
        integer = self.levels["integer"]
        # Not XLA: it may fuse a rescale with the bias after it, and round once where we do twice.
        self.expected = interpret(integer, *inputs)
        handed = handover(self.levels["target"])
        compiled = compile_module(handed.bytecode, flags=job.target.flags)
        self.found = Executable.load(compiled.vmfb, handed.parameters or None)(*inputs)

    @property
    def families(self) -> set[str]:
        """Families of the kernels; those of pairs have the bits of the usual ones."""
        names = self.facts("kernel").values()
        return {name.removeprefix("pair_").split("_")[0] for name in names}

    def facts(self, key: str) -> dict[str, Any]:
        """Decisions of the passes about the ops, by their names."""
        return facts_of(self.levels["target"], key)


def test_products_have_the_bits_of_the_integer_level():
    def fn(p, x, y):
        a = x @ p["a"] + p["b"]
        b = jnp.einsum("bsk,khd->bshd", y, p["c"])
        c = jnp.einsum("kb,kn->bn", x.T, p["a"])
        return a, b, jax.nn.relu(c), (x @ p["a"])[:1]

    params = {"a": array(37, 21), "b": array(21), "c": array(13, 3, 5)}
    inputs = (array(7, 37), array(2, 3, 13))
    for pipeline in ("int8-dynamic", "int8-static"):
        both = Both(fn, params, inputs, pipeline)
        assert both.families == {"gemm"}
        for expected, found in zip(both.expected, both.found, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_one_row_and_a_scalar_scale():
    both = Both(lambda p, x: x @ p["w"], {"w": array(64, 3)}, (array(1, 64),))
    np.testing.assert_array_equal(both.found[0], both.expected[0])


@pytest.mark.parametrize(
    ("strides", "padding", "groups", "dilation"),
    [
        ((1, 1), "SAME", 1, (1, 1)),
        ((2, 1), "VALID", 2, (1, 2)),
        ((1, 1), [(2, 0), (0, 1)], 1, (1, 1)),
    ],
)
def test_convolutions_have_the_bits_of_the_integer_level(strides, padding, groups, dilation):
    def fn(p, x):
        y = jax.lax.conv_general_dilated(
            x,
            p["w"],
            strides,
            padding,
            rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return jax.nn.relu6(y)

    params = {"w": array(3, 2, 6 // groups, 10)}
    both = Both(fn, params, (array(2, 9, 8, 6),), "int8-static")
    assert both.families == {"convolution"}
    np.testing.assert_array_equal(both.found[0], both.expected[0])


@pytest.mark.skipif("avx2" not in HERE, reason="no AVX2 here")
@pytest.mark.parametrize("pipeline", ["int8-static", "int8-dynamic"])
def test_convolutions_by_pairs_have_the_bits_of_the_integer_level(pipeline):
    """A chain of them, whose padding has the zero point's code, in front of and behind others."""

    def fn(p, x):
        y = jax.nn.relu(convolved(x, p["a"]) + 0.1)
        z = jax.nn.relu6(convolved(y, p["b"], strides=(2, 2)))
        return convolved(z, p["c"], groups=2), convolved(y, p["d"], strides=(2, 1))

    params = {"a": array(3, 3, 31, 40), "b": array(2, 3, 40, 64)}
    params |= {"c": array(3, 3, 32, 34), "d": array(2, 2, 40, 24)}
    both = Both(fn, params, (array(2, 9, 8, 31) + 0.5,), pipeline, target="x86-64-v3")
    kernels = both.facts("kernel").values()
    assert sum(name.startswith("pair_convolution_") for name in kernels) == 4, kernels
    for expected, found in zip(both.expected, both.found, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "target", ["llvm-cpu", *["x86-64-v3"] * (detect().name != "avx2"), "llvm-cpu-generic"]
)
@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("int4", "symmetric"), ("int4", "asymmetric"), ("int3", "symmetric"), ("uint4", "asymmetric")],
)
def test_convolutions_of_narrow_codes_have_the_bits_of_the_integer_level(kind, scheme, target):
    """Filters are stored in their bits; those of one channel have taps of 0 beside theirs."""

    def fn(p, x):
        y = jax.nn.relu(convolved(x, p["a"], strides=(2, 1)) + 0.1)
        return convolved(y, p["b"], groups=2), convolved(y, p["c"]), convolved(y, p["d"], groups=34)

    params = {"a": array(3, 3, 20, 34), "b": array(2, 3, 17, 20), "c": array(1, 1, 34, 9)}
    params["d"] = array(3, 3, 1, 34)
    narrow, bits = {"weights.format": kind, "weights.scheme": scheme}, int(kind[-1])
    both = Both(fn, params, (array(2, 9, 8, 20) + 0.5,), target=target, **narrow)
    kernels = both.facts("kernel")
    assert {"a", "b", "c", "d"} <= {*kernels}, kernels
    weights = both.levels["target"].weights.items()
    stored = {n.split(":")[0]: w for n, w in weights if n.endswith(":packed")}
    sizes = {n: (w.dtype.name, w.nbytes / params[n].size * 8) for n, w in stored.items()}
    most = {"a": 2.1, "d": 6}  # matrix tiles have 32 filters
    assert all(t == "int8" and s < most.get(n, 2) * bits for n, (t, s) in sizes.items()), sizes
    for expected, found in zip(both.expected, both.found, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("batch", "first"), [(1, 0.5), (2, 0.5), (2, np.nan), (2, np.inf)])
def test_zero_points_of_samples(batch, first):
    """Found at run time, in one pass over a sample; padding is made of them. Numbers of a sample
    that are not finite change no other one."""

    def fn(p, x):
        return convolved(x, p["w"], strides=(2, 1)), convolved(x, p["d"], groups=20)

    params = {"w": array(3, 3, 20, 10), "d": array(3, 2, 1, 20)}
    x = array(batch, 7, 9, 20) + np.arange(1, 1 + batch, dtype=np.float32).reshape(-1, 1, 1, 1)
    x[0, 0, 0, 0] = first
    both = Both(fn, params, (x,), "int8-dynamic")
    assert both.families == {"convolution", "depthwise"}
    assert all(np.isfinite(found[1:]).all() for found in both.found)
    text = both.levels["target"].text()
    assert f"@jq_quantize_rows_{batch}x1260_" in text and "stablehlo.reduce" not in text
    for expected, found in zip(both.expected, both.found, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_channels_first_and_one_dimension():
    def fn(p, x, s):
        y = jax.lax.conv(x, p["w"], (1, 1), "SAME")
        z = jax.lax.conv_general_dilated(
            s, p["v"], (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        return y, z

    params = {"w": array(5, 3, 3, 3), "v": array(3, 4, 7)}
    both = Both(fn, params, (array(1, 3, 8, 8), array(2, 11, 4)), "int8-static")
    assert both.families == {"convolution"}
    for expected, found in zip(both.expected, both.found, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_normalization_activation_and_attention_are_recognised():
    def hidden(p, x, mask):
        mean = x.mean(-1, keepdims=True)
        y = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
        y = y * p["g"] + p["b"]
        q, k, v = (jnp.reshape(y @ p[n], (2, 6, 4, 8)) for n in "qkv")
        s = jnp.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(8) + mask[:, None, None, :]
        o = jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(s), v).reshape(2, 6, 32)
        return jax.nn.gelu(o @ p["up"], approximate=False)

    params = {"g": array(32), "b": array(32), "up": array(32, 48), "down": array(48, 32)}
    params |= {n: array(32, 32) / 6 for n in "qkv"}
    mask = np.where(np.arange(6) < 4, 0, -1e4).astype(np.float32)[None].repeat(2, 0)
    x = array(2, 6, 32)
    both = Both(lambda p, x, m: x + hidden(p, x, m) @ p["down"], params, (x, mask))
    assert both.families == {"gemm", "attention"}
    text = both.levels["target"].text()
    assert "jq_normalize" in text and "stablehlo.rsqrt" not in text
    assert 'composite "chlo.erfc"' not in text
    # Attention's functions are within 1e-6 of its steps: of the 32 codes of a row of its result one
    # may lie so near to a tie. Its step moves what GELU gives by less than a step of that.
    bound = moved(np.asarray(hidden(params, x, mask)), params["down"])
    assert (np.abs(both.found[0] - both.expected[0]) <= bound).all()


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])
def test_kernels_multiply_columns(pipeline):
    """In front of a quantization, and after a product: the bits of the integer level."""

    def fn(p, x):
        y = jax.nn.relu((x * p["s"]) @ p["a"]) * p["t"]
        return y @ p["b"] + x[:, :16]

    params = {"a": array(32, 48), "b": array(48, 16), "s": array(32), "t": array(48)}
    both = Both(fn, params, (array(24, 32),), pipeline)
    np.testing.assert_array_equal(both.found[0], both.expected[0])
    assert "stablehlo.multiply" not in both.levels["target"].text()


def test_a_normalization_multiplies_columns_of_its_codes():
    def fn(p, x):
        n = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p["g"]
        return (n * p["s"]) @ p["w"] + n

    params = {"g": array(32), "s": array(32), "w": array(32, 32)}
    x = array(24, 32)
    both = Both(fn, params, (x,))
    text = both.levels["target"].text()
    assert "jq_normalize" in text and "stablehlo.multiply" not in text
    assert "jq_quantize_rows" not in text
    # A row's sum in another order moves what is rounded by less than 1e-5.
    rows = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["g"] * params["s"]
    bound = moved(rows, params["w"]) + 1e-5
    assert (np.abs(both.found[0] - both.expected[0]) <= bound).all()


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])
def test_a_weight_for_each_index_of_a_batch(pipeline, scheme):
    """Zero points of weights; JAX writes the second product with the weight in front."""

    def fn(p, x, y):
        a = jnp.einsum("ebk,ekn->ebn", x, p["a"]) + 1
        return a, jnp.einsum("bhk,khn->bhn", y, p["b"]), x[0] @ p["c"], jnp.tanh(y[:, 0] @ p["c"])

    params = {"a": array(3, 32, 9) + 0.3, "b": array(32, 4, 20), "c": array(32, 17) - 0.2}
    inputs = (array(3, 5, 32), array(6, 4, 32))
    both = Both(fn, params, inputs, pipeline, **{"weights.scheme": scheme})
    assert both.families >= {"gemm"} and both.facts("no_kernel") == {}
    for found, expected in zip(both.found[:3], both.expected[:3], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_has_no_kernel_says_why():
    both = Both(
        lambda p, x: x @ p["w"], {"w": array(63, 8)}, (array(4, 63),), **{"weights.format": "int4"}
    )
    assert both.facts("kernel") == {}
    assert both.facts("no_kernel") == {"w": "no kernel for blocks of 63 of codes from -7 to 7"}
    np.testing.assert_array_equal(both.found[0], both.expected[0])


def test_a_function_that_is_not_gelu_stays():
    both = Both(
        lambda p, x: (x @ p["w"]) * jax.nn.sigmoid(1.7 * (x @ p["w"])),
        {"w": array(64, 16)},
        (array(8, 64),),
    )
    text = both.levels["target"].text()
    assert "silu" not in text and "gelu" not in text


def test_bfloat16_models_have_kernels():
    params = {"w": jnp.asarray(array(40, 24), jnp.bfloat16)}
    both = Both(lambda p, x: x @ p["w"], params, (jnp.asarray(array(5, 40), jnp.bfloat16),))
    assert both.families == {"gemm"}
    np.testing.assert_array_equal(both.found[0], both.expected[0])


@pytest.mark.parametrize(
    ("family", "pipeline", "options"),
    [
        ("gemm", "int8-static", {}),
        ("gemm", "int8-static", {"dimension_numbers": ("NCHW", "OIHW", "NCHW")}),
        ("convolution", "int8-static", {"window_strides": (2, 1)}),
        ("convolution", "int8-static", {"padding": [(0, 1), (0, 0)]}),
        ("convolution", "int8-static", {"feature_group_count": 2}),
        ("convolution", "int8-dynamic", {}),
    ],
)
def test_a_window_of_one_pixel_is_a_product(family, pipeline, options):
    """It multiplies the pixels as they lie, with the zero points of all."""
    groups, last = options.get("feature_group_count", 1), "dimension_numbers" not in options
    weight = array(1, 1, 68 // groups, 52)
    params = {"w": weight if last else weight.transpose(3, 2, 0, 1)}
    plain = {"window_strides": (1, 1), "padding": "VALID"}
    plain["dimension_numbers"] = ("NHWC", "HWIO", "NHWC")

    def fn(p, x):
        return jax.nn.relu(jax.lax.conv_general_dilated(x, p["w"], **{**plain, **options}))

    x = array(2, 5, 7, 68)
    both = Both(fn, params, (x if last else x.transpose(0, 3, 1, 2),), pipeline)
    names = {"pair": "gemm"}  # products of bytes, on AVX2
    assert {names.get(name, name) for name in both.families} == {family}
    np.testing.assert_array_equal(both.found[0], both.expected[0])


def test_a_chain_of_convolutions_keeps_its_codes_in_one_view():
    def fn(p, x):
        y = jax.nn.relu(convolved(x, p["a"]) + p["b"])
        y = jax.nn.relu6(convolved(y, p["d"], groups=20, strides=(2, 1)) + p["e"])
        return convolved(y, p["c"])

    params = {"a": array(3, 3, 5, 20) / 5, "b": array(20), "c": array(1, 1, 20, 7)}
    params |= {"d": array(3, 3, 1, 20), "e": array(20)}
    both = Both(fn, params, (array(2, 9, 8, 5),), "int8-static")
    assert both.families == {"convolution", "depthwise", "gemm"}
    assert "stablehlo.xor" not in both.levels["target"].text()
    np.testing.assert_array_equal(both.found[0], both.expected[0])


def test_residual_sums_of_convolutions_are_sums_of_codes():
    """With a clamp in front of the sum, after it, and none; a projected and a plain shortcut."""

    def fn(p, x):
        x = jax.nn.relu6(convolved(x, p["a"]))
        y = jax.nn.relu(convolved(x, p["b"]) + p["e"]) + x
        z = jax.nn.relu(convolved(y, p["b"]) + convolved(y, p["c"]))
        return convolved(z + convolved(z, p["d"], groups=20), p["c"])

    params = {"a": array(3, 3, 5, 20) / 5, "b": array(3, 3, 20, 20) / 9, "e": array(20)}
    params |= {"c": array(1, 1, 20, 20) / 4, "d": array(3, 3, 1, 20)}
    both = Both(fn, params, (array(2, 9, 8, 5),), "int8-static")
    text = both.levels["target"].text()
    assert text.count("add_codes") == 3
    assert not any(kind in text for kind in ("stablehlo.add", "stablehlo.xor", "maximum"))
    np.testing.assert_array_equal(both.found[0], both.expected[0])
    plain = Both(fn, params, (array(2, 9, 8, 5),), "int8-static", convolution_sums="float")
    assert "add_codes" not in plain.levels["target"].text()
    np.testing.assert_array_equal(plain.found[0], plain.expected[0])


def convolved(x, w, groups=1, strides=(1, 1)):
    return jax.lax.conv_general_dilated(
        x,
        w,
        strides,
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


@pytest.mark.parametrize("width", [1, 3, 5])
def test_narrow_groups_take_no_more_room(width):
    """A filter that is stored for a kernel has no lanes filled up."""
    params = {"w": array(3, 3, 2 * width, 24 * width)}
    both = Both(
        lambda p, x: convolved(x, p["w"], groups=24),
        params,
        (array(1, 6, 5, 48 * width),),
        "int8-static",
    )
    assert both.families == {"convolution"}
    stored = both.levels["target"].weights["w:packed"]
    assert stored.nbytes <= 2 * params["w"].size
    np.testing.assert_array_equal(both.found[0], both.expected[0])


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize(
    ("fn", "step"),
    [
        (jax.nn.silu, Silu()),
        (jax.nn.gelu, Gelu(approximate=True)),
        (partial(jax.nn.gelu, approximate=False), Gelu()),
        (lambda x: x * (1 + jax.lax.erf(x / np.float32(np.sqrt(2)))) * 0.5, Gelu()),  # of ONNX
        (jax.nn.relu6, Clamp(0.0, 6.0)),
        (lambda x: jnp.clip(x, -3.4e38, 6.0), Clamp(float(np.float32(-3.4e38)), 6.0)),
        (lambda x: jnp.clip(x, 0.0, 65504.0), Clamp(0.0, 65504.0)),
        (lambda x: jnp.minimum(jax.nn.silu(x), 65504.0), Silu()),
        (lambda x: jnp.where(x > 0, x, 0), None),  # NaN becomes 0
        (lambda x: jax.nn.relu(jnp.nan_to_num(x)), None),
        (lambda x: jnp.where(jnp.isnan(x), 0, jax.nn.gelu(x)), None),
        (lambda x: jnp.where(jnp.isinf(x), 0, jax.nn.silu(x)), None),
        (jnp.tanh, None),
    ],
)
def test_activations_of_a_few_numbers_are_found(fn, step, size):
    model = jq.Model(lambda p, x: fn(x) * 2.5, {}, (array(1, size),))
    program = trace(model).program
    found = find_activation(program, program.body.arguments[0])
    assert (found and found.step) == step


@pytest.mark.parametrize("rows", [1, 24])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-12])
def test_the_epsilon_of_a_normalization_is_found(epsilon, rows):
    """However few its rows are: one row alone says nothing about it where it is large."""

    def fn(p, x):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * p["g"]

    program = trace(jq.Model(fn, {"g": array(32)}, (array(rows, 32),))).program
    found = find_normalization(program, program.body.arguments[0])
    assert found is not None and found.epsilon == np.float32(epsilon)


@pytest.mark.parametrize(
    "after", [lambda y: jnp.clip(y, -9, 9), jnp.nan_to_num], ids=["limits", "numbers for NaN"]
)
@pytest.mark.parametrize("center", [True, False], ids=["layer norm", "rms norm"])
def test_what_changes_few_rows_is_no_part_of_a_normalization(center, after):
    """Only a row with one large element goes beyond 9, and only a damaged one is NaN."""

    def fn(p, x):
        y = x - x.mean(-1, keepdims=True) if center else x
        return after(y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6))

    program = trace(jq.Model(fn, {}, (array(4, 256),))).program
    found = find_normalization(program, program.body.arguments[0])
    assert found is not None and found.cut.result.owner.operation.name == "stablehlo.multiply"


@pytest.mark.parametrize("center", [True, False], ids=["layer norm", "rms norm"])
def test_a_normalization_with_a_residual_around_it(center):
    """Its input is read again after it."""

    def fn(p, x):
        x = x @ p["a"]
        y = x - x.mean(-1, keepdims=True) if center else x
        n = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * p["g"]
        return jnp.sin(x + jax.nn.relu(n @ p["b"]) @ p["a"])

    params = {"a": array(32, 32) / 6, "b": array(32, 32) / 6, "g": array(32)}
    both = Both(fn, params, (array(24, 32),))
    text = both.levels["target"].text()
    assert "jq_normalize" in text and "stablehlo.rsqrt" not in text
    assert text.count("call @jq_quantize_rows") == 2
    np.testing.assert_allclose(both.found[0], both.expected[0], atol=0.03)
