"""ONNX files with Q/DQ: ONNX Runtime gives the bits of the integer program."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import jq
from jq.device.forms import float_rescale, qdq
from jq.device.forms.canonical.base import Simple
from jq.device.forms.float_rescale import named_function
from jq.device.forms.table import Content
from jq.device.network import Tensor
from jq.device.results import Export
from jq.formats.integer_functions import Output
from jq.formats.requantize import SINGLE
from tests.support.programs import evaluated

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("quick_xla")
SETTINGS = {"recovery": False}


def _conv(x, w, **more):
    given = {"window_strides": (1, 1), "padding": "SAME", **more}
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, dimension_numbers=dims, **given)


def _pool(x, combine, start, window):
    return jax.lax.reduce_window(x, start, combine, window, window, "VALID")


def _exported(apply, params, shape, path: Path, ends: str = "int8"):
    rng = np.random.default_rng(7)
    samples = [(rng.standard_normal(shape).astype(np.float32),) for _ in range(2)]
    model = jq.Model(apply, params, samples[0], calibration=samples)
    found = jq.export(model, path, ends=ends, verify=True, settings=SETTINGS)
    file = onnx.load(path)
    onnx.checker.check_model(file, full_check=True)
    metadata = {p.key: json.loads(p.value) for p in file.metadata_props}
    return found, [n.op_type for n in file.graph.node], metadata


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"a": (3, 3, 4, 8), "b": (3, 3, 8, 8), "c": (3, 3, 1, 8), "d": (8, 5)}
    return {k: (rng.standard_normal(s) / 5).astype(np.float32) for k, s in shapes.items()}


def _residual(p, x):
    """Sums, a dilated, a strided and a depthwise convolution, a mean and a product."""
    a = jax.nn.relu(_conv(x, p["a"]))
    b = a + _conv(a, p["b"], rhs_dilation=(2, 2))
    c = _conv(b, p["c"], feature_group_count=8, window_strides=(2, 2))
    return jnp.mean(jax.nn.relu(c), (1, 2)) @ p["d"]


def _moves(p, x):
    """Ops that move codes, and the largest of a window."""
    a = _conv(x, p["a"])
    a = jnp.concatenate([a, a[:, ::-1]], 3)[:, 1:, 1::2, 4:12]
    a = jnp.pad(a, ((0, 0), (1, 0), (0, 0), (0, 0)))
    a = _pool(a, jax.lax.max, -jnp.inf, (1, 2, 2, 1))
    return jnp.maximum(a, 0.25).transpose(0, 3, 1, 2).reshape(2, -1)


def _functions(p, x):
    """Functions of one number, with an ONNX op (tanh) and without (silu), and a product."""
    a = jnp.tanh(_conv(x, p["a"]))
    b = jax.nn.silu(_conv(a, p["b"]))
    return (a * b - a).reshape(2, -1)


def _by_channel(p, x):
    """Numbers by channel and along several axes, and elements by a known place."""
    a = jnp.take(x * p["d"][:4, 0] + p["d"][4:, 1], jnp.array([3, 0]), axis=2)
    return _conv(a + p["a"][0, :2, :, 0], p["a"])


def _gated(p, x):
    """A product of two tensors in front of a sigmoid, which takes it with the other sign, and its
    opposite."""
    a = x.reshape(32, 16) @ p["b"].reshape(16, -1)[:, :8]
    return jax.nn.sigmoid(a @ a.T) @ a, -(a @ a.T)


@pytest.mark.parametrize(
    ("apply", "ops"),
    [
        (_gated, {"MatMul", "BitwiseNot"}),
        (_by_channel, {"Gather", "Conv"}),
        (_residual, {"Conv", "Add", "GlobalAveragePool", "Gemm"}),
        (_moves, {"Concat", "Slice", "Pad", "MaxPool", "Transpose", "Reshape"}),
        (_functions, {"Conv", "Gather", "Mul", "Sub"}),
    ],
)
def test_drawn_networks_have_the_same_bits(apply, ops, weights, tmp_path: Path) -> None:
    found, written, _ = _exported(apply, weights, (2, 8, 8, 4), tmp_path / "m.onnx")
    assert found["same"] == found["outputs"] > 0
    assert ops <= set(written)


def test_integers_are_computed_as_they_are(tmp_path: Path) -> None:
    def apply(p, x, i):
        far = ((i > 2) & ~(i == 5)) | ((i != 1) & (i >= 0))
        return jax.nn.one_hot(jnp.where(far, i - 1, i + 3), 4) @ p, x @ p, far

    inputs = np.ones((3, 4), np.float32), np.arange(-1, 6, dtype=np.int32)
    model = jq.Model(apply, np.eye(4, dtype=np.float32), inputs, calibration=[inputs])
    found = jq.export(model, tmp_path / "m.onnx", verify=True, settings=SETTINGS)
    assert found["same"] == found["outputs"] > 0


@pytest.mark.parametrize(
    "more", [{"window_strides": (2, 1)}, {"padding": [(1, 2), (0, 0)]}], ids=["stride", "padding"]
)
def test_a_column_that_is_no_list_of_rows_stays_a_convolution(more, tmp_path: Path) -> None:
    w = np.random.default_rng(4).standard_normal((1, 1, 3, 5)).astype(np.float32)
    file = tmp_path / "column.onnx"
    found, ops, _ = _exported(lambda p, x: _conv(x, p, **more), w, (1, 9, 1, 3), file)
    assert found["same"] == found["outputs"] > 0 and "Gemm" not in ops


def test_a_bias_by_channel_behind_a_sum_of_two() -> None:
    """Images that ONNX has channels first; the sum is that of `jq.passes.integer`."""
    rng, shape = np.random.default_rng(5), (1, 4, 6, 8)
    zero, scales, out = np.zeros(1, np.int32), (0.03, 0.05), Output(0.1, -3, -128, 127)
    codes = rng.integers(-128, 128, (2, *shape)).astype(np.int8)
    bias = rng.integers(-(1 << 22), 1 << 22, shape[3])
    unit = 2 * max(scales)
    factor = np.array([unit / 2**20 / out.scale])
    given = {"bits": np.array(20), "unit": np.array(unit), "factor": factor, "bias": bias}
    x, y, pooled, also, last = (
        Tensor(name, shape, "int8", np.array([by], np.float32), zero)
        for name, by in zip("xypqz", (*scales, *scales, out.scale), strict=True)
    )
    window = {"window": [1, 1], "stride": [1, 1], "padding": [(0, 0), (0, 0)]}
    steps = [
        Simple("max_pool", "p", (x,), pooled, window),
        Simple("max_pool", "q", (y,), also, window),
        Simple("add", "z", (pooled, also), replace(last, zero_point=zero - 3), {}, given, out),
    ]
    data = qdq.write(Content(steps, (x, y), (steps[-1].output,), SINGLE))
    terms = (
        float_rescale.rescaled(v.astype(np.int32) << 20, np.array(by / unit), SINGLE)
        for v, by in zip(codes, scales, strict=True)
    )
    total = float_rescale.rescaled(sum(terms) + bias.astype(np.int32), factor, SINGLE) - 3
    ((found,),) = qdq.run(data, [list(codes)])
    assert np.array_equal(found, np.clip(total, -128, 127))
    assert list(qdq.near_ties(data)) == ["z"]


_OF_TWO = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "multiple": lambda x, y: jax.nn.relu((x + y) * 0.37),
    "multiple of a product": lambda x, y: jnp.minimum(x * y * 1.7, 0.9),
    "with a bias": lambda x, y: x + y + 0.3,
    "negative multiple": lambda x, y: (x + y) * -0.7,
    "negative difference": lambda x, y: (x - y) * -0.7,
    "negative product": lambda x, y: x * y * -2,
    "product taken from a number": lambda x, y: 1 - x * y,
}


@pytest.mark.parametrize("name", _OF_TWO)
def test_each_pair_of_codes(name: str, tmp_path: Path) -> None:
    """Sums and products whose ties float32 decides: of all codes, by drawn scales."""
    rng = np.random.default_rng(len(name))
    for case in range(3):
        codes = np.stack(np.divmod(np.arange(65536), 256)).reshape(2, 64, 128, 8)
        zeros, sizes = rng.integers(0, 256, (2, 1, 1, 1)), np.exp(rng.uniform(-3, 3, (2, 1, 1, 1)))
        x, y = ((codes - zeros) / 255 * sizes).astype(np.float32)
        model = jq.Model(lambda _, x, y: _OF_TWO[name](x, y), {}, (x, y), calibration=[(x, y)])
        found = jq.export(model, tmp_path / f"{case}.onnx", verify=True, settings=SETTINGS)
        assert found["same"] == found["outputs"] > 65536
        assert found["near_ties"] == {}


def test_digits_and_back(tmp_path: Path) -> None:
    """With float ends; and our own reader computes what ONNX Runtime does."""
    path = tmp_path / "digits.onnx"
    found = jq.export(jq.models.digits_cnn, path, ends="float", verify=True, settings=SETTINGS)
    assert found["same"] == found["outputs"] == 320 * 8
    assert found["readers"]["optimized"] == [320 * 8] * 2
    same, outputs = found["readers"]["as written"]
    assert outputs == 320 * 8
    assert outputs >= same > 0.99 * outputs  # sums of floats may be rounded
    file = onnx.load(path)
    assert file.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    written = [n.op_type for n in file.graph.node]
    assert written.count("Transpose") == 2  # between NHWC and NCHW, at both ends
    x = np.random.default_rng(0).random((32, 8, 8, 1)).astype(np.float32)
    ((wanted,),) = qdq.run(path.read_bytes(), [[x]])
    compiled = jq.compile(str(path), "float", "llvm-cpu-generic", emit="integer")
    (read,) = evaluated(compiled.levels["integer"], x)
    assert np.array_equal(read, wanted)


def test_what_is_computed_in_float_is_said(weights, tmp_path: Path) -> None:
    def apply(p, x):
        return jax.nn.softmax(x @ p["d"])

    found, written, metadata = _exported(apply, weights, (16, 8), tmp_path / "m.onnx")
    assert "Softmax" in written
    assert any("softmax" in why for why in metadata["jq.near_ties"].values())
    assert found["near_ties"] == metadata["jq.near_ties"]
    said = Export({**found, "same": found["outputs"] - 1}).summary()
    assert "may differ by one" in said and "ONNX Runtime computes softmax in float32" in said


def test_scores_that_a_constant_hides_have_no_share(weights, tmp_path: Path) -> None:
    """All of a row that is hidden as a whole have the same."""
    seen = np.tri(5, k=-1, dtype=bool)

    def apply(p, x):
        return jax.nn.softmax(jnp.where(seen, x @ p["d"], jnp.finfo(jnp.float32).min))

    found, written, _ = _exported(apply, weights, (5, 8), tmp_path / "m.onnx")
    assert "Softmax" in written and found["same"] > 0
    codes = np.random.default_rng(0).integers(-128, 128, (5, 8), np.int8)
    ((got,),) = qdq.run((tmp_path / "m.onnx").read_bytes(), [[codes]])
    (end,) = found["results"]
    shares = (got.astype(int) - end["zero_point"]) * end["scale"]
    np.testing.assert_allclose(shares[0], 0.2, atol=end["scale"])
    assert (shares[1:][~seen[1:]] == 0).all() and (shares[1:].max(1) > 0.2).all()


def test_codes_begin_at_the_same_sums() -> None:
    """Every sum up to saturation, of factors whose codes are said to agree: exact arithmetic on
    one side, float32 on the other."""
    rng = np.random.default_rng(1)
    factor, scale, out = 10 ** rng.uniform(-3, -1, 12), 0.0123, Output(0.037, -3, -128, 127)
    guess = (factor * out.scale / scale).astype(np.float32)
    f32 = np.float32

    def of(s):
        return (f32(scale) * s) / f32(out.scale)

    found, bad = float_rescale.sum_scales(factor, guess, of, out, SINGLE)
    wrong = 0
    for f, s in zip(factor, found, strict=True):
        x = np.arange(int(-140 / f), int(140 / f))
        exact = _single(x, float(f))
        floats = np.rint(x.astype(f32) * of(s))
        wrong += not np.array_equal(np.clip(exact, -125, 130), np.clip(floats, -125, 130))
    assert wrong == bad < len(factor)
    assert (abs(found / guess - 1) < 2**-19).all()


def _single(x: np.ndarray, factor: float) -> np.ndarray:
    """By the formula, in int64: |x| stays below 2^20."""
    mantissa, shift = Fraction(factor), 31
    while mantissa < Fraction(1, 2):
        mantissa, shift = mantissa * 2, shift + 1
    m = round(mantissa * 2**31)
    return (x * m + (1 << (shift - 1))) >> shift


def test_functions_by_their_values() -> None:
    out, real = Output(0.0123, 5, -128, 127), np.arange(-128, 128) * 0.0341
    codes = np.clip(np.rint(np.tanh(real) / out.scale) + 5, -128, 127)
    assert named_function(real, codes, out) == ("Tanh", {})
    codes[3] += 1
    assert named_function(real, codes, out) is None
    # Next to a tie no float32 function is sure of a code.
    tie, numbers = Output(0.05, 0, -128, 127), np.array([-2.0, 0.025, 1.0])
    assert named_function(numbers, np.array([0, 0, 20]), tie) is None
    numbers[1] = 0.024
    assert named_function(numbers, np.array([0, 0, 20]), tie) == ("Relu", {})


def test_no_channel_is_next_to_a_tie(tmp_path: Path) -> None:
    """The target rescales as ONNX Runtime does: no scale is looked for, and none is missed."""
    rng = np.random.default_rng(1)
    params = {"w": rng.standard_normal((1, 1, 64, 256), np.float32), "b": rng.standard_normal(256)}
    params["b"] = params["b"].astype(np.float32)
    found, _, metadata = _exported(
        lambda p, x: _conv(x, p["w"]) + p["b"], params, (1, 16, 16, 64), tmp_path / "m.onnx"
    )
    assert found["same"] == found["outputs"] > 0
    assert metadata["jq.near_ties"] == {}
