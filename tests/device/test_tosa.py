"""Integer-only networks as TOSA, in Arm's reference model, against our integer program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq
from jq.device.exporting import PIPELINE
from jq.device.forms.canonical.base import Simple
from jq.device.forms.tosa import file, run
from jq.device.forms.tosa.builder import Builder
from jq.device.forms.tosa.functions import product
from jq.device.network import Tensor
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.formats.arrays import NUMPY
from jq.formats.requantize import Rescaling, rounding_right_shift
from jq.frontends.tosa.schema import OPERATORS, SCHEMA, TYPES
from jq.ir.oracle.interpreter import interpret
from jq.passes.pipeline import rewrite
from tests.support.encoder import build_random

pytest.importorskip("tosa_reference_model", reason="Arm's reference model is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")
RNG = np.random.default_rng(0)
NHWC = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[:-1])))


def conv(x: Any, w: Any, stride: int = 1, **others: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=NHWC, **others
    )


def signs(p: Any, x: Any) -> Any:
    """Channels with negative factors, in a filter and behind a sum of two."""
    h = jax.nn.relu(conv(x, p["w"]) * p["g"])
    return -(h + conv(h, p["v"], feature_group_count=8))


def functions(p: Any, x: Any) -> Any:
    """Tables of 8 and of 16 bits, joined."""
    h = x @ p["w"]
    return jnp.concatenate([jnp.tanh(h), jax.nn.hard_swish(h)], -1) @ p["v"] * 2 - 1


def attention(p: Any, x: Any) -> Any:
    return jax.nn.softmax((x @ p["q"]) @ (x @ p["k"]).T) @ (x @ p["v"])


def hidden(p: Any, x: Any) -> Any:
    """Scores of one row, of which a constant hides some."""
    scores = jnp.where(np.arange(8) < 6, x @ p["w"], jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores) @ p["v"]


def normalized(p: Any, x: Any) -> Any:
    """LayerNorm of a residual sum, of 16 bits, and lengths of its rows, of 8."""
    h = x + x @ p["w"]
    u = h - h.mean(-1, keepdims=True)
    h = u * lax.rsqrt((u * u).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]
    return h * lax.rsqrt((h * h).sum(-1, keepdims=True)) @ p["w"]


def chosen(p: Any, x: Any) -> Any:
    """A function that is a choice by sign, a quotient, and windows of codes of 16 bits."""
    h = jax.nn.leaky_relu(x @ p["w"], 0.1) / (2 + jnp.tanh(x @ p["w"]))
    h = (h + x).reshape(1, 4, 6, 4)
    h = lax.reduce_window(h, 0.0, lax.add, (1, 2, 2, 1), (1,) * 4, "SAME")
    return h.reshape(12, 8) @ p["w"]


def by_conditions(p: Any, x: Any) -> Any:
    """A choice by conditions on two tensors."""
    h, g = x @ p["w"], jnp.tanh(x @ p["v"])
    unlike = (h < 0) != (g >= 0.2)
    return jnp.where(((h >= 0.1) & (g < 0.5)) | ~(g != 0) | unlike, h @ p["v"], g / 2) @ p["w"]


def windows(p: Any, x: Any) -> Any:
    """Pools of sizes that strides do not divide, a transposed and a grouped convolution."""
    x = conv(x, p["w"], 2)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = lax.conv_transpose(x, p["t"], (2, 2), "SAME")
    return conv(x, p["g"], feature_group_count=2).mean((1, 2)) @ p["d"]


def channels_first(p: Any, x: Any) -> Any:
    """A factor and a bias by channel behind a pool, and channels that are no last axis."""
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return (x * p["g"][:, None, None] + p["b"][:, None, None]).sum((2, 3)) @ p["w"]


def recurrent(p: Any, x: Any) -> Any:
    """A gated unit that gives every state: its products are of tensors of 16 bits."""

    def step(h: Any, x: Any) -> Any:
        z = jax.nn.sigmoid(x @ p["z"] + h @ p["u"])
        new = jnp.tanh(x @ p["w"] + z * (h @ p["v"]))
        h = (1 - z) * new + z * h
        return h, h

    return lax.scan(step, jnp.zeros((1, 8)), x[:, None])[1]


def resized(p: Any, x: Any) -> Any:
    """A linear resize: its matrix is computed from nothing."""
    x = conv(x, p["w"])
    return conv(jax.image.resize(x, (1, 8, 12, 8), "linear"), p["v"])


def far_bias(p: Any, x: Any) -> Any:
    """A bias that the accumulator cannot hold is added behind the rescale."""
    return (x @ p["w"]) * 1e-7 + p["b"]


def picked(p: Any, x: Any) -> Any:
    """Every second and third element, elements along inner axes, and extremes of two tensors."""
    x = conv(x, p["w"])
    rows, columns = x[:, ::2, 1::3], x[:, :, np.array([[3, 1]])][:, :3, 0]
    x = jnp.maximum(rows, columns) + jnp.minimum(x[:, 1:4:1, -1:1:-2], columns)
    return jax.image.resize(x, (1, 6, 5, 8), "nearest")


def spread(p: Any, x: Any) -> Any:
    """Extremes of windows that no pool has, and a transposed convolution with groups, a dilated
    filter and results beyond its elements."""
    x = lax.reduce_window(x, jnp.inf, lax.min, (2, 2, 2, 1), (1, 1, 2, 1), "SAME")
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 2, 1), (1,) * 4, "VALID", window_dilation=(1, 1, 2, 1)
    )
    more = {"lhs_dilation": (3, 2), "rhs_dilation": (1, 2), "dimension_numbers": NHWC}
    padding = [(1, 5), (4, 0)]
    return lax.conv_general_dilated(x, p["t"], (1, 1), padding, feature_group_count=2, **more)


def volumes(p: Any, x: Any) -> Any:
    """Groups, zeros between elements, steps and dilated filters along three axes, averages along
    them, and parts at places that are constants, of which one lies beyond the end."""
    more: dict[str, Any] = {"lhs_dilation": (2, 1, 3), "rhs_dilation": (2, 1, 1)}
    more |= {"feature_group_count": 2, "dimension_numbers": ("NDHWC", "DHWIO", "NDHWC")}
    x = lax.conv_general_dilated(x, p["w"], (1, 2, 2), [(2, 1), (0, 1), (1, 0)], **more)
    x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 2, 1), (1, 1, 1, 2, 1), "VALID") / 8
    x = lax.pad(x, 0.0, [(0, 0, 0), (0, 1, 0), (1, 0, 2), (0, 0, 0), (0, 0, 0)])
    part = lax.dynamic_slice(x, (0, 9, 1, 0, 1), (1, 2, 2, 2, 2))
    return lax.dynamic_update_slice(x, jnp.maximum(part, 0.1), (0, 1, 9, 0, 2))


def checked(p: Any, x: Any) -> Any:
    """Scores that a condition on the input hides, and rows at places that are checked."""
    scores = jnp.where(x[:, :1].T < 0, -jnp.inf, (x @ p["q"]) @ (x @ p["k"]).T)
    y = jax.nn.softmax(scores) @ x
    return jnp.take(y, jnp.argmax(y, 0), axis=0)


def largest(p: Any, x: Any) -> Any:
    """A mask of codes of 16 bits that are the largest of a column, and its product with them."""
    return (x == x.max(1, keepdims=True)).astype(jnp.float32) * x


NETWORKS: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray], tuple[int, ...]]] = {
    "signs": (
        signs,
        {
            "w": normal(3, 3, 3, 8),
            "v": normal(3, 3, 1, 8),
            "g": np.float32([1, -1, 2, -0.5, 1, -1, 1, -2]),
        },
        (1, 6, 6, 3),
    ),
    "functions": (functions, {"w": normal(8, 8), "v": normal(16, 4)}, (4, 8)),
    "attention": (attention, {k: 2 * normal(8, 8) for k in "qkv"}, (6, 8)),
    "hidden": (hidden, {"w": normal(8, 8), "v": normal(8, 4)}, (1, 8)),
    "normalized": (
        normalized,
        {"w": normal(24, 24), "g": 1 + normal(24), "b": normal(24)},
        (5, 24),
    ),
    "chosen": (chosen, {"w": normal(8, 8)}, (12, 8)),
    "by_conditions": (by_conditions, {"w": normal(8, 8), "v": normal(8, 8)}, (4, 8)),
    "windows": (
        windows,
        {
            "w": normal(3, 3, 3, 8),
            "t": normal(3, 3, 8, 8),
            "g": normal(3, 3, 4, 8),
            "d": normal(8, 4),
        },
        (1, 11, 11, 3),
    ),
    "channels_first": (
        channels_first,
        {"g": normal(8), "b": normal(8), "w": normal(8, 4)},
        (1, 8, 4, 6),
    ),
    "resized": (resized, {"w": normal(3, 3, 3, 8), "v": normal(1, 1, 8, 4)}, (1, 4, 6, 3)),
    "recurrent": (recurrent, {k: normal(8, 8) for k in "zuwv"}, (4, 8)),
    "picked": (picked, {"w": normal(3, 3, 3, 8)}, (1, 5, 6, 3)),
    "largest": (largest, {}, (2, 5, 6)),
    "far_bias": (far_bias, {"w": normal(8, 8), "b": normal(8)}, (4, 8)),
    "spread": (spread, {"t": normal(2, 3, 2, 4)}, (2, 4, 7, 4)),
    "volumes": (volumes, {"w": normal(2, 2, 1, 2, 4)}, (1, 3, 6, 4, 4)),
    "checked": (checked, {k: normal(8, 8) for k in "qk"}, (6, 8)),
}


def exported(
    apply: Any,
    params: Any,
    shape: tuple[int, ...],
    path: Path,
    target: str | None,
    file: str = "m.tosa",
    **others: Any,
) -> Any:
    samples = [(RNG.standard_normal(shape, np.float32),) for _ in range(3)]
    model = jq.Model(apply, params, samples[0], calibration=samples)
    return jq.export(model, path / file, verify=True, target=target, **others)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_output_has_the_same_bits(name: str, tmp_path: Path) -> None:
    found = exported(*NETWORKS[name], tmp_path, "npu-int8")
    assert found["same"] == found["outputs"] > 0


def test_places_are_those_of_the_codes(tmp_path: Path) -> None:
    """The first of equal ones, of results that are given as well, and sums of them."""

    def apply(p: Any, x: Any) -> Any:
        y = x @ p["w"]
        most = jnp.argmax(y, -1)
        return y, most, jnp.argmin(y, 0), jnp.cumsum(most), most.sum()

    network = apply, {"w": np.rint(normal(8, 8))}, (6, 8)
    found = exported(*network, tmp_path, "npu-int8")
    assert found["same"] == found["outputs"] == 7 * (48 + 6 + 8 + 6 + 1)
    model, x = jq.Model(*network[:2], (normal(6, 8),)), np.rint(normal(6, 8))
    request = Request(PIPELINE, "npu-int8", {"recovery": False}, calibration=[(x,)])
    job = prepare_job(model, request)
    plan = job.context(plan_job(job, request.stages))
    program = rewrite(job.program, job.pipeline, plan, "integer")["integer"]
    y, largest, least, *_ = interpret(program, x)
    assert np.array_equal(largest, y.argmax(-1)) and np.array_equal(least, y.argmin(0))


@pytest.mark.parametrize("name", ["resized", "windows"])
def test_codes_of_16_bits_are_multiplied_in_halves(name: str, tmp_path: Path) -> None:
    settings = {"activations.format": "int16"}
    found = exported(*NETWORKS[name], tmp_path, "ethos-u85", settings=settings)
    assert found["same"] == found["outputs"] > 0
    assert {t["dtype"] for t in found["inputs"]} == {"int16"}


def test_limits_of_8_bits_leave_codes_of_16_bits(tmp_path: Path) -> None:
    """A part without a spark has coarse steps, and is clipped to two of them."""

    def apply(p: Any, x: Any) -> Any:
        h = jnp.clip(x @ p["w"] - jnp.float32([100, *[0] * 7]), 0, 1)
        return h @ p["v"] + h[:1, :1]

    weights = {"w": normal(8, 8), "v": normal(8, 8)}
    settings = {"activations.format": "int16"}
    found = exported(apply, weights, (4, 8), tmp_path, "ethos-u85", settings=settings)
    assert found["same"] == found["outputs"] > 0


def test_offsets_of_many_channels(tmp_path: Path) -> None:
    """A half of a fraction of a code, rounded as the integer program rounds it."""

    def layer_norm(p: Any, x: Any) -> Any:
        u = x - x.mean(-1, keepdims=True)
        return u * lax.rsqrt((u * u).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]

    params = {"g": np.ones(384, np.float32), "b": RNG.standard_normal(384, np.float32) / 5}
    found = exported(layer_norm, params, (96, 384), tmp_path, "ethos-u85")
    assert found["same"] == found["outputs"] > 0 and found["results"][0]["dtype"] == "int16"


@pytest.mark.parametrize("name", ["signs", "functions"])
def test_iree_reads_the_text(name: str, tmp_path: Path) -> None:
    found = exported(*NETWORKS[name], tmp_path, "ethos-u55", "m.tosa.mlir")
    assert found["form"] == "tosa-mlir"
    assert found["readers"] == {"IREE": [found["outputs"]] * 2}
    assert found["same"] > 0


def two_readers(p: Any, x: Any) -> Any:
    """The sum of a convolution is rescaled to 16 bits for a residual sum, and to 8 for the next."""
    h = conv(x, p["w"])
    return conv(h + conv(h, p["v"]), p["v"])


@pytest.mark.parametrize(("target", "written"), [("ethos-u55", 4), ("ethos-u85", 3)])
def test_sums_are_shared_where_the_device_says_so(
    target: str, written: int, tmp_path: Path
) -> None:
    params = {"w": normal(3, 3, 3, 8), "v": normal(1, 1, 8, 8)}
    found = exported(two_readers, params, (1, 4, 6, 3), tmp_path, target)
    assert found["same"] == found["outputs"] > 0
    assert found["operators"]["conv2d"] == 4
    (region,) = SCHEMA.decode("Graph", (tmp_path / "m.tosa").read_bytes())["regions"]
    kinds = [OPERATORS[op["op"] - 1] for op in region["blocks"][0]["operators"]]
    assert kinds.count("CONV2D") == written


def test_an_encoder_whose_embedding_stays_on_the_host(tmp_path: Path) -> None:
    """Attention with a mask, GELU, normalizations, a quotient: all on the device; the embedding and
    the mask are computed in float in front of the first codes, which are the file's inputs."""
    model = build_random(sequence=6, layers=1, hidden=16, heads=2)
    found = jq.export(model, tmp_path / "m.tosa", target="ethos-u85", verify=True)
    assert found["same"] == found["outputs"] > 0
    assert {"softmax", "normalization", "quotient"} <= found["operators"].keys()
    assert all(t["dtype"] in ("int8", "int16") for t in found["inputs"])


def test_what_tosa_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(jq.UserError, match="sort .*no form"):
        exported(
            lambda p, x: jnp.argsort(x @ p["w"], -1),
            {"w": normal(8, 4)},
            (4, 8),
            tmp_path,
            "npu-int8",
        )
    with pytest.raises(jq.UserError, match="^top_k of"):
        exported(lambda p, x: lax.top_k(x, 2)[1], {}, (4, 8), tmp_path, "npu-int8")
    assert not list(tmp_path.iterdir())


def chosen_alone(p: Any, x: Any) -> Any:
    """Choices that are functions of one tensor, in front of one between two, and places of it."""
    h = jax.nn.elu(jax.nn.leaky_relu(x @ p["w"]) @ p["v"]) @ p["w"]
    h = jnp.where((h > 0.2) & (h < 0.8), h, -0.5) @ p["v"]
    h = jnp.where(h > x, h @ p["w"], jnp.tanh(x))
    return h, jnp.argmax(h, -1), jnp.argmin(h, 0)


@pytest.mark.parametrize("file", ["m.tosa", "m.tflite", "m.onnx"])
def test_a_choice_that_is_a_function_is_a_table(file: str, tmp_path: Path) -> None:
    network = chosen_alone, {k: normal(8, 8) for k in "wv"}, (6, 8)
    settings = {"recovery": False, "activations.residual": "int8"}
    found = exported(*network, tmp_path, None, file, settings=settings)
    assert found["same"] == found["outputs"] > 0
    kinds = found["operators"]
    assert kinds["select"] == 3 and kinds["greater"] == 1 and "greater_equal" not in kinds


def placed(p: Any, x: Any, at: Any) -> Any:
    """Parts that are read and written at computed places, some beyond the ends, and elements by
    indices of several axes."""
    y = x @ p["w"]
    cube = y.reshape(2, 3, 8)
    new = lax.dynamic_update_slice(y, y[2:4, 1:6], (at[0], at[1]))
    new = new.at[at[1]].set(y[at[0]]).at[:, 3].set(y[:, 5]).at[at[2:]].set(y[:2])
    two = lax.ScatterDimensionNumbers((0, 1), (), (0,))
    wide = lax.scatter(y, at[3:], y[1:3], two, mode=lax.GatherScatterMode.FILL_OR_DROP)
    rows = jax.vmap(lambda row, i: lax.dynamic_slice_in_dim(row, i, 3))(y[:4], at)
    along = jnp.take_along_axis(cube, at.reshape(2, 1, 2), 2, mode="clip")
    each = jax.vmap(lambda row, new, i: lax.dynamic_update_slice(row, new, (i,)))
    rows = each(y[:4], rows, at % 3) + jnp.roll(y, (at[0] * at[1] - 9) // 4, 0)[:4]
    rows += y[(best := jnp.argmax(y)) // 8, best % 8]
    part = lax.dynamic_slice(cube, (at[3], at[2], 0), (1, 2, 5))
    known = cube[np.array([0, 1, 1]), :, np.array([1, 7, 3])]
    return new @ p["w"], wide, rows, along, part, known, y[at, at[::-1]], cube[at, 1:, at]


def positions(p: Any, x: Any) -> Any:
    """Numbers for each row and column, behind a dense layer, a convolution, a product of two
    tensors and a mean."""
    h = jnp.tanh(x @ p["w"] + p["pos"]) @ p["w"] * p["pos"]
    h = jnp.tanh(h @ x.T - p["pos"][:, :6]) @ x
    image = conv(h.reshape(1, 4, 4, 3), p["c"]) + p["image"]
    return conv(image, p["c"]), h.reshape(6, 4, 2).mean(-1) * p["pos"][:, :4]


@pytest.mark.parametrize("file", ["m.tosa", "m.tflite", "m.onnx"])
def test_numbers_that_differ_along_more_axes_than_the_channels(file: str, tmp_path: Path) -> None:
    shapes = {"w": (8, 8), "pos": (6, 8), "c": (3, 3, 3, 3), "image": (4, 4, 3)}
    network = positions, {k: normal(*shape) for k, shape in shapes.items()}, (6, 8)
    found = exported(*network, tmp_path, None, file, settings={"recovery": False})
    assert found["same"] == found["outputs"] > 0


def apart(p: Any, x: Any, at: Any) -> Any:
    """Codes of 16 bits with scales of their own, compared; sizes, opposites and halves of indices,
    and truth values at places that are computed."""
    one, other = x + x[::-1], x @ p["w"] - 3 * x
    place = abs(at - 4) + (at >> 1) - (-at << 2)
    alike = jnp.where((one > other) | (one == 2 * other), x, 0)
    return alike, one <= other, place, (one[:, 0] < 0)[place % 6], -abs(at)


@pytest.mark.parametrize("file", ["m.tosa", "m.tflite", "m.onnx"])
def test_two_of_16_bits_are_compared_and_indices_computed(file: str, tmp_path: Path) -> None:
    samples = [(normal(6, 8), np.array(at, np.int32)) for at in ([-3, 5, 4, 0], [9, 7, -8, 1])]
    model = jq.Model(apart, {"w": normal(8, 8)}, samples[0], calibration=samples)
    found = jq.export(model, tmp_path / file, verify=True, settings={"recovery": False})
    assert found["same"] == found["outputs"] > 0
    assert {"greater", "gather_rows", "integer_divide"} <= set(found["operators"])


@pytest.mark.parametrize("file", ["m.tosa", "m.tflite", "m.onnx"])
def test_places_that_are_computed(file: str, tmp_path: Path) -> None:
    places = np.array([[2, 1, 5, 4], [-3, 9, 7, 0], [5, -1, 0, 5]], np.int32)
    samples = [(normal(6, 8), at) for at in places]
    model = jq.Model(placed, {"w": normal(8, 8)}, samples[0], calibration=samples)
    settings = {"recovery": False}
    found = jq.export(model, tmp_path / file, verify=True, settings=settings)
    assert found["same"] == found["outputs"] > 0
    assert {"gather_rows", "integer_multiply"} <= set(found["operators"])


def test_a_resize_of_an_onnx_file_repeats_elements(tmp_path: Path) -> None:
    """To the nearest, by whole numbers: no element is chosen by an index."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    given = {"w": normal(3, 3, 1, 1), "scales": np.array([1, 1, 2, 3], np.float32)}
    nodes = [
        h.make_node("Conv", ["x", "w"], ["a"]),
        h.make_node(
            "Resize",
            ["a", "", "scales"],
            ["b"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        h.make_node("Conv", ["b", "w"], ["y"]),
    ]
    infos = [
        [h.make_tensor_value_info(name, 1, shape)]
        for name, shape in (("x", (1, 3, 3, 2)), ("y", (1, 3, 6, 6)))
    ]
    weights = [onnx.numpy_helper.from_array(v, k) for k, v in given.items()]
    graph = h.make_graph(nodes, "g", *infos, initializer=weights)
    path = tmp_path / "m.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=10), path)
    calibration = [(normal(1, 3, 3, 2),) for _ in range(2)]
    found = jq.export(path, tmp_path / "m.tosa", calibration=calibration, verify=True)
    assert found["same"] == found["outputs"] > 0
    assert not {"select", "gather_rows"} & set(found["operators"])


@pytest.mark.parametrize(("zero", "bits"), [(0, 1), (7, 1), (-5000, 2)])
def test_halves_of_products_are_rounded_away_from_zero(zero: int, bits: int) -> None:
    builder, codes = Builder(Rescaling("double", 64)), RNG.integers(-(1 << 15), 1 << 15, (2, 64))
    a, b = (Tensor(name, (1, 64), "int16", np.ones(1), np.array([zero])) for name in ("a", "b"))
    step = Simple("multiply", "m", (a, b), a)
    for tensor in (a, b):
        builder.tensor(tensor.name, tensor.shape, tensor.dtype)
    last = product(builder, step, bits)
    data = file(builder, ["a", "b"], [last])
    ((found,),) = run(data, [[v.astype(np.int16)[None] for v in codes]])
    exact = np.prod(codes.astype(np.int64) - zero, 0)
    wanted = rounding_right_shift(NUMPY, exact, bits)
    assert (found == wanted).all()
    assert (np.floor(exact / 2**bits + 0.5) != wanted).any()


def test_a_factor_of_nothing_takes_any_sum() -> None:
    """A rescale takes values below 2^(shift - 1) alone: those of a dead channel are its bias."""
    builder = Builder(Rescaling("double", 64))
    x = builder.tensor("x", (1,), "int32")
    builder.rescale(x, np.array([1e-17]), ((1,), "int8"))
    (shift,) = (t for t in builder.tensors[1:3] if t["type"] == TYPES["int8"])
    assert shift["data"].tolist() == [62]


def test_a_remainder_by_what_is_computed_is_refused(tmp_path: Path) -> None:
    at = np.array([2, 1], np.int32)
    model = jq.Model(lambda p, x, i: (x @ p, i % i[0]), normal(8, 8), (normal(6, 8), at))
    with pytest.raises(jq.UserError, match="a division by a number that is computed") as error:
        jq.export(model, tmp_path / "m.tosa", calibration=[(normal(6, 8), at)])
    assert "constant" in str(error.value.hint)


def test_a_rescale_that_alone_reads_codes_skips_no_rounding(tmp_path: Path) -> None:
    """ONNX Runtime merges the pair of a rescale with the one in front of it."""

    def looked_up(p: Any, x: Any, at: Any) -> Any:
        return jnp.concatenate([(x @ p)[at % 6], x[:, :8]], 1)

    rng, at = np.random.default_rng(0), np.arange(8, dtype=np.int32)
    given = [(rng.standard_normal((8, 16)).astype(np.float32), at + i) for i in range(6)]
    weight = rng.standard_normal((16, 8)).astype(np.float32)
    model, settings = jq.Model(looked_up, weight, given[0]), {"recovery": False}
    path = tmp_path / "m.onnx"
    found = jq.export(model, path, calibration=given, settings=settings, verify=True)
    assert found["operators"]["rescale"] == 1 and found["same"] == found["outputs"] > 0
