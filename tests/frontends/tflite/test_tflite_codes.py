"""Operators of int8 as LiteRT's reference kernels round them, in the integer program of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.device.exporting import PIPELINE
from jq.device.forms.tflite import DESCRIPTION, run
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.frontends.tflite.operators import as_onnx
from jq.frontends.tflite.schema import READ, SCHEMA, TYPES
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.integer import _tflite
from jq.passes.pipeline import rewrite

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

TARGET = "litert-reference"
NUMBERS = {name: number for number, name in READ.items()}
X = (1, 6, 8, 16)
FIRST = {
    "PRELU",
    "HARD_SWISH",
    "ELU",
    "NEG",
    "SQUEEZE",
    "EXPAND_DIMS",
    "RELU_N1_TO_1",
    "SQUARED_DIFFERENCE",
    "SQUARE",
    "DEPTH_TO_SPACE",
    "GELU",
}  # versions


def coded(scale: float, zero: int) -> dict[str, Any]:
    return {"scale": np.array([scale], np.float32), "zero_point": np.array([zero], np.int64)}


SCALES = {"scale": np.geomspace(0.01, 0.05, 6).astype(np.float32), "zero_point": np.zeros(6, "i8")}


def file_of(
    kind: str,
    given: list[tuple[np.ndarray, Any]],
    shape: Any,
    out: Any,
    options: Any,
    codes: tuple[str, float, int] = ("int8", 0.05, 3),
) -> dict[str, Any]:
    """One operator on X, with codes of 0.05 around 3, and constants; `out` are scale and zero."""
    dtype, *grid = codes
    tensors: list[dict[str, Any]] = [{"shape": list(X), "buffer": 0, "name": "x"}]
    tensors[0] |= {"type": TYPES[dtype], "quantization": coded(*grid)}
    buffers: list[dict[str, Any]] = [{}]
    for i, (array, quantization) in enumerate(given):
        buffers.append({"data": np.frombuffer(array.tobytes(), np.uint8)})
        found = {"shape": list(array.shape), "buffer": i + 1, "name": f"c{i}"}
        found["type"] = TYPES[array.dtype.name]
        tensors.append(found | ({"quantization": quantization} if quantization else {}))
    last = len(tensors)
    result = {"shape": list(shape), "type": TYPES[dtype], "buffer": 0, "name": "y"}
    tensors.append(result | {"quantization": coded(*out)})
    operator = {"opcode_index": 0, "inputs": list(range(last)), "outputs": [last]}
    graph = {"tensors": tensors, "inputs": [0], "outputs": [last]}
    graph["operators"] = [operator | ({"builtin_options": options} if options else {})]
    number = NUMBERS[kind]
    version = 1 if kind in FIRST else 2
    kinds = [{"deprecated_builtin_code": min(number, 127), "version": version}]
    kinds[0]["builtin_code"] = number
    said = {"version": 3, "description": DESCRIPTION["double"]}  # `run` takes the reference kernels
    return said | {"operator_codes": kinds, "subgraphs": [graph], "buffers": buffers}


def cases() -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (96, 16)).astype(np.int8)
    bias = rng.integers(-9000, 9000, 96).astype(np.int32)
    pool = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 2}
    wide, axes = ("ReducerOptions", {"keep_dims": True}), np.array([1, 2], np.int32)
    flat = ("ReducerOptions", {"keep_dims": False})
    given = [(weights, coded(0.01, 0)), (bias, coded(0.0005, 0))]
    same, other = (0.05, 3), (0.021, -7)
    shape = np.array([3, *X[1:]], np.int32)
    scales = {"scale": np.geomspace(0.004, 0.02, 96).astype(np.float32), "axis": 0}
    filters = weights.reshape(96, 1, 1, 16), scales | {"zero_point": np.zeros(96, np.int64)}
    steps = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "padding": 1}
    return {
        "dense": file_of(
            "FULLY_CONNECTED", given, (48, 96), (0.13, 7), ("FullyConnectedOptions", {})
        ),
        "dense of many axes": file_of(  # as Keras' Dense is of sequences: no reshape behind it
            *("FULLY_CONNECTED", given[:1], (1, 6, 8, 96), (0.13, -128)),
            ("FullyConnectedOptions", {"activation": 1, "keep_num_dims": True}),
        ),
        "dense of ties": file_of(  # of which one direction is up, and the other away from zero
            *("FULLY_CONNECTED", [(weights, coded(2.0**-8, 0))], (48, 96), (0.125, 7)),
            *(("FullyConnectedOptions", {}), ("int8", 2.0**-4, -3)),
        ),
        "dense of rows": file_of(  # many axes come in, and rows go out
            *("FULLY_CONNECTED", given[:1], (48, 96), (0.13, -128)),
            ("FullyConnectedOptions", {"activation": 1}),
        ),
        "bias without a scale": file_of(
            "CONV_2D", [filters, (bias, None)], (1, 6, 8, 96), (0.13, 7), ("Conv2DOptions", steps)
        ),
        "dense bias without a scale": file_of(
            *("FULLY_CONNECTED", [given[0], (bias, None)], (48, 96), (0.13, 7)),
            ("FullyConnectedOptions", {}),
        ),
        "product": file_of(
            "MUL", [(weights[:48].reshape(X), coded(0.031, 2))], X, (0.113, 5), ("MulOptions", {})
        ),
        **{
            f"{kind} of a constant by channel": file_of(
                kind, [(weights[:1].reshape(1, 1, 1, 16), coded(0.031, 2))], X, (0.113, 5), ()
            )
            for kind in ("ADD", "SUB", "MUL")
        },
        "product of a number": file_of(
            *("MUL", [(weights[4:5, 0], coded(0.034790546, -84))], X, (0.13985704, -5), ()),
            ("int8", 0.07297581, -20),
        ),
        "product of a constant of fewer axes": file_of(
            "MUL", [(weights[:6].reshape(6, 1, 16), coded(0.031, 2))], X, (0.113, 5), ()
        ),
        "blocks": file_of(
            *("SPACE_TO_DEPTH", [], (1, 3, 4, 64), same, ("SpaceToDepthOptions", {"block_size": 2}))
        ),
        "pixels": file_of(
            *("DEPTH_TO_SPACE", [], (1, 12, 16, 4), same),
            ("DepthToSpaceOptions", {"block_size": 2}),
        ),
        "repeated": file_of("BROADCAST_TO", [(shape, None)], (3, 6, 8, 16), same, ()),
        "packed": file_of(  # a constant's zero point is stored in 8 bits, an activation's in 32
            *("PACK", [(weights[:48].reshape(X), coded(*same))], (1, 2, 6, 8, 16), same),
            ("PackOptions", {"values_count": 2, "axis": 1}),
        ),
        "leaky": file_of("LEAKY_RELU", [], X, (0.043, -20), ("LeakyReluOptions", {"alpha": 0.13})),
        "slopes": file_of(
            "PRELU", [(weights[:1].reshape(1, 1, 16), coded(0.004, 5))], X, (0.04, -20), ()
        ),
        "absolute": file_of("ABS", [], X, (0.04, -5), ()),
        "exponential": file_of("EXP", [], X, (0.9, -120), ()),
        "root": file_of("SQRT", [], X, (0.02, -100), (), ("int8", 0.05, -128)),
        "inverse root": file_of(
            "RSQRT", [], X, (0.0036918384, -94), (), ("int8", 0.12680693, -128)
        ),
        "fine inverse root": file_of(
            "RSQRT", [], X, (0.00070938887, -112), (), ("int8", 0.41546157, -128)
        ),
        "rows": file_of("L2_NORMALIZATION", [], X, (2.0**-7, 0), ("L2NormOptions", {})),
        "difference": file_of(
            "SQUARED_DIFFERENCE", [(weights[:48].reshape(X), coded(0.031, 2))], X, (0.53, -120), ()
        ),
        "difference from a number": file_of(
            *("SQUARED_DIFFERENCE", [(np.array([13], np.int8), coded(0.014984961, -120))], X),
            *((0.14104886, -123), (), ("int8", 0.05366059, 10)),
        ),
        **{
            f"image of {size}, {next(iter(how), 'legacy')}": file_of(
                *("RESIZE_BILINEAR", [(np.array(size, np.int32), None)], (1, *size, 16), same),
                ("ResizeBilinearOptions", how),
            )
            for size, how in (
                ((13, 5), {"half_pixel_centers": True}),
                ((11, 17), {"align_corners": True}),
                ((1, 19), {}),
            )
        },
        "unit": file_of("ELU", [], X, (0.053, -100), (), ("int8", 0.051, -30)),
        "bent": file_of("GELU", [], X, (0.031, -120), ("GeluOptions", {"approximate": False})),
        "bent by tanh": file_of(
            "GELU", [], X, (0.031, -120), ("GeluOptions", {"approximate": True})
        ),
        "logarithm": file_of("LOG", [], X, (0.04, -5), ()),  # also of what is not positive
        "largest": file_of("REDUCE_MAX", [(axes[:1], None)], (1, 8, 16), same, flat),
        "least": file_of("REDUCE_MIN", [(axes, None)], (1, 1, 1, 16), same, wide),
        "codes of another scale": file_of("QUANTIZE", [], X, (0.1649, 3), ("QuantizeOptions", {})),
        "relu": file_of("RELU", [], X, (0.1128, -100), ()),
        "finer relu": file_of("RELU6", [], X, (0.0213, -101), ()),
        "gate": file_of("HARD_SWISH", [], X, (0.0217, -100), (), ("int8", 0.0391, -5)),
        "fine gate": file_of("HARD_SWISH", [], X, (0.01459, 0), (), ("int8", 0.01292, 0)),
        "large gate": file_of("HARD_SWISH", [], X, (0.27618, -128), (), ("int8", 0.55221, -128)),
        "low gate": file_of("HARD_SWISH", [], X, (0.00405, 0), (), ("int8", 0.00292, 0)),
        "far gate": file_of("HARD_SWISH", [], X, (0.31, -30), (), ("int8", 0.4, 9)),
        "small slope": file_of(
            "LEAKY_RELU", [], X, (0.2, 5), ("LeakyReluOptions", {"alpha": 0.01})
        ),
        "pool": file_of(
            "AVERAGE_POOL_2D", [], (1, 2, 4, 16), same, ("Pool2DOptions", {**pool, "padding": 1})
        ),
        "padded": file_of("AVERAGE_POOL_2D", [], (1, 3, 4, 16), same, ("Pool2DOptions", pool)),
        "tiles": file_of(
            *("AVERAGE_POOL_2D", [], (1, 2, 4, 16), same),
            ("Pool2DOptions", {**pool, "stride_h": 3, "padding": 1}),
        ),
        "largest of windows, limited": file_of(
            *("MAX_POOL_2D", [], (1, 3, 4, 16), same), ("Pool2DOptions", {**pool, "activation": 3})
        ),
        "mean": file_of("MEAN", [(axes[:1], None)], (1, 8, 16), other, flat),
        "kept": file_of("MEAN", [(axes, None)], (1, 1, 1, 16), other, wide),
        "of one encoding": file_of("MEAN", [(axes[1:], None)], (1, 6, 16), same, flat),
        "tied": file_of("MEAN", [(axes[1:], None)], (1, 6, 16), (0.1, 4), flat),
        **wide_cases(weights, scales, steps, axes),
    }


def wide_cases(weights: np.ndarray, scales: Any, steps: Any, axes: np.ndarray) -> dict[str, Any]:
    """Codes of 16 bits: sums of 64 bits are rescaled by mantissas of 15."""
    rng, codes = np.random.default_rng(4), ("int16", 0.0004, 0)
    # Some biases have more bits than float32 numbers, and all reach codes within the ends.
    bias = np.rint(rng.uniform(-3e4, 3e4, 96) / (codes[1] * scales["scale"] / 0.01)).astype("i8")
    filters = weights.reshape(96, 1, 1, 16), scales | {"zero_point": np.zeros(96, np.int64)}
    given = weights, filters[1]
    pool = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 2}
    flat, slope = ("ReducerOptions", {"keep_dims": False}), coded(0.004, 5)
    return {
        f"wide {name}": file_of(*args, codes)
        for name, args in {
            "convolution": (
                *("CONV_2D", [filters, (bias, None)], (1, 6, 8, 96), (0.01, 0)),
                ("Conv2DOptions", steps),
            ),
            "dense": (
                *("FULLY_CONNECTED", [given, (bias, None)], (48, 96), (0.002, 0)),
                ("FullyConnectedOptions", {"activation": 1}),
            ),
            "dense of ties": (
                *("FULLY_CONNECTED", [(weights, coded(2.0**-7, 0))], (48, 96), (0.0004 / 4, 0)),
                ("FullyConnectedOptions", {}),
            ),
            "codes of another scale": ("QUANTIZE", [], X, (0.0009, 0), ("QuantizeOptions", {})),
            "sum": ("ADD", [(bias[:16].astype("i2"), coded(0.0002, 0))], X, (0.0005, 0), ()),
            "pool": ("AVERAGE_POOL_2D", [], (1, 3, 4, 16), codes[1:], ("Pool2DOptions", pool)),
            "mean": ("MEAN", [(axes[:1], None)], (1, 8, 16), (0.0003, 0), flat),
            "leaky": ("LEAKY_RELU", [], X, (0.0003, 0), ("LeakyReluOptions", {"alpha": 0.13})),
            "absolute": ("ABS", [], X, (0.0003, 0), ()),
            "slopes": ("PRELU", [(weights[:1].reshape(1, 1, 16), slope)], X, (0.0003, 0), ()),
            "exponential": ("EXP", [], X, (0.013, 0), ()),
            "logarithm": ("LOG", [], X, (0.0004, 0), ()),
            "tanh": ("TANH", [], X, (2.0**-15, 0), ()),
            "sigmoid": ("LOGISTIC", [], X, (2.0**-15, 0), ()),
            "image": (
                *("RESIZE_BILINEAR", [(np.array([13, 5], np.int32), None)], (1, 13, 5, 16)),
                *(codes[1:], ("ResizeBilinearOptions", {"half_pixel_centers": True})),
            ),
            "bent": ("GELU", [], X, (0.00043, 0), ("GeluOptions", {"approximate": False})),
        }.items()
    }


CASES = cases()


def drawn(bits: int = 8) -> np.ndarray:
    """Codes of X."""
    half = 1 << (bits - 1)
    return np.random.default_rng(1).integers(-half, half, X).astype(f"int{bits}")


# XNNPACK has the first of these, and leaves the others to LiteRT's kernels.
DEFAULT = ["codes of another scale", "leaky", "mean", "kept", "of one encoding", "tied"]
DEFAULT += ["ADD of a constant by channel", "small slope", "relu", "finer relu", "absolute", "gate"]
DEFAULT += ["inverse root", "difference", "difference from a number", "product of a number", "rows"]
DEFAULT += ["unit", "root", "exponential", "bent", "bent by tanh"]  # no reference kernel has ELU
DEFAULT += [
    "fine gate",
    "large gate",
    "low gate",
    "far gate",
    "slopes",
    "pool",
    "padded",
    "tiles",
    # Those of 16 bits are all LiteRT's.
    *(f"wide {name}" for name in ("mean", "convolution", "dense", "leaky", "tanh", "exponential")),
]


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, TARGET) for name in CASES if name != "unit"),
        *((name, "litert") for name in DEFAULT),
    ],
)
def test_codes_are_those_of_the_kernel(name: str, target: str, tmp_path: Path) -> None:
    """Each has a rounding of its own: once, ties of codes away from zero, a divided mantissa, a
    multiplier of 8 bits, products of 16 bits."""
    got, want, text = computed(name, target, tmp_path)
    assert np.array_equal(got, want)
    assert len(np.unique(want)) > 4
    if name == "tiles":  # which compilers add up in vectors
        assert "reduce_window" not in text


def computed(name: str, target: str, folder: Path) -> tuple[np.ndarray, np.ndarray, str]:
    """Codes of the integer program and of the kernel, and the program's text."""
    path, fields = folder / "m.tflite", dict(CASES[name])
    if target == "litert":
        fields["description"] = DESCRIPTION["float32"]
    path.write_bytes(SCHEMA.encode("Model", fields))
    x = drawn(16 if name.startswith("wide") else 8)
    request = Request(PIPELINE, target, {"recovery": False}, calibration=[(x,)])
    job = prepare_job(str(path), request)
    context = job.context(plan_job(job, request.stages))
    integer = rewrite(job.program, job.pipeline, context, "integer")["integer"]
    ((want,),) = run(path.read_bytes(), [[x]])
    return XlaExecutable(integer)(x)[0], want, str(integer.module)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("name", ["root", "low gate"])
def test_other_targets_compute_in_floats_and_round_once(name: str, tmp_path: Path) -> None:
    """LiteRT's kernels round a root down, and a gate several times."""
    got, kernel, _ = computed(name, "npu-int8", tmp_path)
    tensors = CASES[name]["subgraphs"][0]["tensors"]
    scales = (t["quantization"] for t in tensors)
    (scale, zero), (to, at) = ((q["scale"][0], q["zero_point"][0]) for q in scales)
    x = (drawn().astype(np.float32) - zero) * scale
    y = np.sqrt(x) if name == "root" else x * np.clip(x / 6 + 0.5, 0, 1)
    assert np.array_equal(got, np.clip(np.rint(y / to) + at, -128, 127))
    assert not np.array_equal(got, kernel)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", ["npu-int8", "onnx-qdq"])
def test_other_targets_have_squared_differences(target: str, tmp_path: Path) -> None:
    """In units of 1/256 of the larger scale: a step off a number that is rounded once, at most."""
    got, _, _ = computed("difference", target, tmp_path)
    tensors = CASES["difference"]["subgraphs"][0]["tensors"]
    (s, z), (t, w), (to, at) = (
        (q["scale"][0], q["zero_point"][0]) for q in (t["quantization"] for t in tensors)
    )
    c = np.frombuffer(CASES["difference"]["buffers"][1]["data"], np.int8).reshape(X)
    y = ((drawn().astype(float) - z) * s - (c.astype(float) - w) * t) ** 2
    assert np.abs(got - np.clip(np.rint(y / to) + at, -128, 127)).max() <= 1


@pytest.mark.usefixtures("quick_xla")
def test_the_mean_of_many_codes_has_no_table(tmp_path: Path, monkeypatch) -> None:
    """It would be larger than the network, and the codes are one off at most without it."""
    *_, text = computed("mean", "litert", tmp_path)
    assert "stablehlo.gather" in text
    monkeypatch.setattr(_tflite, "COUNTED", 4)
    got, want, text = computed("mean", "litert", tmp_path)
    assert "stablehlo.gather" not in text
    assert np.abs(got.astype(int) - want).max() <= 1


def test_operators_whose_codes_may_differ_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide, size = ("int16", 0.05, 0), [(np.array([6, 8], np.int32), None)]
    cases: list[Any] = [
        ("ADD_N", [], (), "1 ADD_N (it has no kernel of codes)"),
        ("ABS", [], (), ""),
    ]
    cases += [("RSQRT", [], (), ""), ("RESIZE_BILINEAR", size, (), "1 RESIZE_BILINEAR")]
    cases += [("RESIZE_BILINEAR", size, (wide,), "")]
    for kind, named in (("int16", "1 PRELU (it reads slopes of 16 bits as of 8)"), ("int8", "")):
        cases += [("PRELU", [(np.ones((1, 1, 16), kind), coded(0.01, 0))], (wide,), named)]
    for i, (kind, more, codes, named) in enumerate(cases):
        path, fields = tmp_path / f"{i}.tflite", file_of(kind, more, X, (0.04, 0), (), *codes)
        path.write_bytes(SCHEMA.encode("Model", fields))
        caplog.clear()
        for _ in range(2):  # a compilation reads it several times
            as_onnx(path.read_bytes(), path)
        assert named in caplog.text
        assert len(caplog.records) == bool(named)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize(
    ("kind", "out"),
    [
        ("PRELU", (0.0145, -118)),
        ("SQUARED_DIFFERENCE", (0.053, -118)),
        ("L2_NORMALIZATION", (2.0**-7, 0)),
    ],
)
def test_the_parts_of_an_operator_have_no_codes_of_their_own(
    kind: str, out: tuple[float, int], tmp_path: Path
) -> None:
    """Behind a product, whose numbers are not those of an input."""
    rng = np.random.default_rng(2)
    filters = rng.integers(-127, 128, (16, 1, 1, 16)).astype(np.int8), coded(0.002, 0)
    steps = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "padding": 1}
    given = [filters, (np.zeros(16, np.int32), coded(0.0001, 0))]
    fields = file_of("CONV_2D", given, X, (0.027, -4), ("Conv2DOptions", steps))
    (graph,), last = fields["subgraphs"], fields["operator_codes"][0]
    slopes = {"shape": [1, 1, 16], "type": TYPES["int8"], "buffer": 3, "name": "slopes"}
    result = dict(graph["tensors"][3], name="z", quantization=coded(*out))
    graph["tensors"] += [slopes | {"quantization": coded(0.004, 0)}, result]
    fields["buffers"].append({"data": np.arange(-8, 8, dtype=np.int8).view(np.uint8)})
    inputs = [3] if kind == "L2_NORMALIZATION" else [3, 4]
    graph["operators"].append({"opcode_index": 1, "inputs": inputs, "outputs": [5]})
    graph["outputs"], number = [5], NUMBERS[kind]
    code = {"deprecated_builtin_code": number, "version": 1, "builtin_code": number}
    fields["operator_codes"] = [last, code]
    path, x = tmp_path / "m.tflite", drawn()
    path.write_bytes(SCHEMA.encode("Model", fields))
    request = Request(PIPELINE, TARGET, {"recovery": False}, calibration=[(x,)])
    job = prepare_job(str(path), request)
    context = job.context(plan_job(job, request.stages))
    integer = rewrite(job.program, job.pipeline, context, "integer")["integer"]
    ((want,),) = run(path.read_bytes(), [[x]])
    assert np.array_equal(XlaExecutable(integer)(x)[0], want)


def test_codes_that_are_negated_are_refused(tmp_path: Path) -> None:
    """LiteRT's kernel knows no zero point, and leaves -128 as it is."""
    path = tmp_path / "m.tflite"
    data = SCHEMA.encode("Model", file_of("NEG", [], X, (0.05, -3), ()))
    with pytest.raises(jq.UserError, match="^NEG of codes, .* is not read"):
        as_onnx(data, path)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, TARGET) for name in ("dense", "pool", "kept", "relu", "finer relu")),
        *((name, TARGET) for name in ("dense of ties", "wide dense", "wide dense of ties")),
        *((name, TARGET) for name in ("rows", "difference", "difference from a number")),
        *((n, "litert") for n in ("codes of another scale", "relu", "finer relu", "leaky", "mean")),
        *((f"wide {name}", "litert") for name in ("sum", "convolution", "leaky")),
    ],
)
def test_they_are_written_as_the_operators_that_they_are(
    name: str, target: str, tmp_path: Path
) -> None:
    files, fields = [tmp_path / "m.tflite", tmp_path / "again.tflite"], dict(CASES[name])
    if target == "litert":
        fields["description"] = DESCRIPTION["float32"]
    files[0].write_bytes(SCHEMA.encode("Model", fields))
    x = drawn(16 if name.startswith("wide") else 8)
    jq.export(str(files[0]), files[1], target=target, calibration=[(x,)])
    want, got = (run(path.read_bytes(), [[x]]) for path in files)
    assert np.array_equal(got[0][0], want[0][0])


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", [TARGET, "litert"])
def test_codes_that_are_repeated_are_not_quantized_again(target: str, tmp_path: Path) -> None:
    """A gate by channel, as in squeeze and excitation: a mean times the tensor."""
    fields = dict(CASES["kept"])
    if target == "litert":
        fields["description"] = DESCRIPTION["float32"]
    (graph,) = fields["subgraphs"]
    result = {**graph["tensors"][0], "name": "z", "quantization": coded(0.05, -9)}
    scale = {"opcode_index": 1, "inputs": [0, 2], "outputs": [3]}
    operators = [*graph["operators"], scale | {"builtin_options": ("MulOptions", {})}]
    graph = graph | {"tensors": [*graph["tensors"], result], "operators": operators, "outputs": [3]}
    mul = {"deprecated_builtin_code": 18, "version": 2, "builtin_code": 18}
    codes = [*fields["operator_codes"], mul]
    path, x = tmp_path / "m.tflite", drawn()
    path.write_bytes(
        SCHEMA.encode("Model", fields | {"subgraphs": [graph], "operator_codes": codes})
    )
    job = prepare_job(str(path), request := Request(PIPELINE, target, {"recovery": False}))
    context = job.context(plan_job(job, request.stages))
    integer = rewrite(job.program, job.pipeline, context, "integer")["integer"]
    ((want,),) = run(path.read_bytes(), [[x]])
    assert np.array_equal(XlaExecutable(integer)(x)[0], want)
    assert len(np.unique(want)) > 20


@pytest.mark.parametrize(
    "kind", ["GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL", "NOT_EQUAL"]
)
def test_a_choice_by_a_comparison(kind: str, tmp_path: Path) -> None:
    """Codes of one scale are compared, and chosen as they are."""
    other = np.random.default_rng(2).integers(-128, 128, X).astype(np.int8)
    fields = file_of(kind, [(other, coded(0.05, 3))], X, (0.05, 3), ())
    (graph,), codes = fields["subgraphs"], fields["operator_codes"]
    truth = {"shape": list(X), "type": 6, "buffer": 0, "name": "c"}
    tensors = [*graph["tensors"][:2], truth, graph["tensors"][2]]
    compare = {"opcode_index": 0, "inputs": [0, 1], "outputs": [2]}
    choose = {"opcode_index": 1, "inputs": [2, 0, 1], "outputs": [3]}
    graph |= {"tensors": tensors, "operators": [compare, choose], "outputs": [3]}
    codes.append({"deprecated_builtin_code": 123, "version": 1, "builtin_code": 123})
    codes[0]["version"] = 1
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", fields))
    x = np.random.default_rng(1).integers(-128, 128, X).astype(np.int8)
    x[:, :2] = other[:, :2]
    ((want,),) = run(path.read_bytes(), [[x]])
    (got,) = XlaExecutable(jq.trace(str(path)).program)(x)
    assert np.array_equal(got, want)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("kind", ["GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL"])
@pytest.mark.parametrize("bits", [8, 16])
def test_codes_of_two_scales_are_compared_as_kernels_do(
    kind: str, bits: int, tmp_path: Path
) -> None:
    """Numbers are rounded to 1/256; codes of 16 bits that are greater or less are not scaled."""
    codes = ("int8", 0.0031, 5) if bits == 8 else ("int16", 2e-4, 0)
    other = np.random.default_rng(2).integers(-128, 128, (1, 1, 1, 16)).astype(codes[0])
    given = other, coded(0.0047, -9) if bits == 8 else coded(3e-4, 0)
    fields = file_of(kind, [given], X, (1, 0), (), codes)
    result = fields["subgraphs"][0]["tensors"][-1]
    del result["quantization"]
    result["type"], fields["operator_codes"][0]["version"] = TYPES["bool"], 1
    path, x = tmp_path / "m.tflite", drawn(bits) if bits == 8 else drawn(8).astype(np.int16) * 3
    path.write_bytes(SCHEMA.encode("Model", fields))
    request = Request(PIPELINE, TARGET, {"recovery": False}, calibration=[(x,)])
    job = prepare_job(str(path), request)
    levels = rewrite(job.program, job.pipeline, job.context(plan_job(job, request.stages)))
    ((want,),) = run(path.read_bytes(), [[x]])
    assert np.array_equal(XlaExecutable(levels["integer"])(x)[0], want)
    assert 0 < want.sum() < want.size


def test_what_kernels_do_otherwise_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Subgraphs that are not read among it."""
    dense, numbers = dict(CASES["dense bias without a scale"]), dict(CASES["unit"])
    floats = dict(
        file_of(
            "FULLY_CONNECTED",
            [(np.ones((96, 16), "i1"), coded(0.1, 0))],
            (48, 96),
            (0.1, 0),
            ("FullyConnectedOptions", {}),
        )
    )
    (graph,) = floats["subgraphs"]
    for tensor in (graph["tensors"][0], graph["tensors"][-1]):
        del tensor["quantization"]
        tensor["type"] = TYPES["float32"]
    (graph,) = numbers["subgraphs"]
    given, result = graph["tensors"]
    between = [{"shape": X, "type": 0, "buffer": 0, "name": n} for n in "ab"]
    kinds = [NUMBERS[kind] for kind in ("DEQUANTIZE", "SOFTMAX", "QUANTIZE")]
    numbers["operator_codes"] = [{"builtin_code": n, "version": 1} for n in kinds]
    graph = graph | {"tensors": [given, *between, result], "outputs": [3]}
    graph["operators"] = [{"opcode_index": i, "inputs": [i], "outputs": [i + 1]} for i in range(3)]
    numbers["subgraphs"] = [graph, {"name": "decode"}, {}]
    said = [
        "1 FULLY_CONNECTED (by default, of a bias without a scale)",
        "1 SOFTMAX (floats between codes)",
        "1 FULLY_CONNECTED (it rounds its input to codes when it runs)",
    ]
    for i, (fields, text) in enumerate(zip((dense, numbers, floats), said, strict=True)):
        caplog.clear()
        as_onnx(SCHEMA.encode("Model", fields), tmp_path / f"{i}.tflite")
        assert text in caplog.text
        assert ("first subgraph is read, not decode, 2" in caplog.text) == (i == 1)


def test_a_tensor_is_taken_apart(tmp_path: Path) -> None:
    options = "UnpackOptions", {"num": 6, "axis": 1}
    fields = file_of("UNPACK", [], (1, 8, 16), (0.05, 3), options)
    (graph,) = fields["subgraphs"]
    fields["operator_codes"][0]["version"] = 1
    graph["tensors"] += [{**graph["tensors"][1], "name": f"y{i}"} for i in range(5)]
    graph["outputs"] = graph["operators"][0]["outputs"] = list(range(1, 7))
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", fields))
    (want,), got = run(path.read_bytes(), [[drawn()]]), jq.trace(str(path)).program
    for a, b in zip(XlaExecutable(got)(drawn()), want, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.usefixtures("quick_xla")
def test_a_float_elu_between_codes_is_rounded_once(tmp_path: Path, monkeypatch) -> None:
    """Numbers that it leaves as they are have no multiplier of 8 bits, as XNNPACK's QUANTIZE."""
    fields = file_of("ELU", [], X, (0.0185, -76), (), ("int8", 0.028, -7))
    (graph,) = fields["subgraphs"]
    given, result = graph["tensors"]
    floats = [{"shape": X, "type": TYPES["float32"], "buffer": 0, "name": n} for n in "ab"]
    graph["tensors"] = [given, *floats, result]
    kinds = [(0, [0], [1]), (1, [1], [2]), (2, [2], [3])]
    keys = ("opcode_index", "inputs", "outputs")
    graph["operators"], graph["outputs"] = [dict(zip(keys, k, strict=True)) for k in kinds], [3]
    numbers = [NUMBERS[kind] for kind in ("DEQUANTIZE", "ELU", "QUANTIZE")]
    fields["operator_codes"] = [
        {"deprecated_builtin_code": n, "version": 1, "builtin_code": n} for n in numbers
    ]
    monkeypatch.setitem(CASES, "float unit", fields)
    got, want, _ = computed("float unit", "litert", tmp_path)
    assert np.array_equal(got, want)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("by", ["activations", "weights", "codes"])
def test_products_by_weights_around_zero_are_those_of_xnnpack(by: str, tmp_path: Path) -> None:
    """Others, of two activations among them, are rounded twice for `litert` too."""
    rng = np.random.default_rng(1)
    other = rng.integers(-128, 128, (1, 6, 16, 8)).astype(np.int8)
    given = other, coded(2.0**-7, 7 * (by == "codes"))
    options = "BatchMatMulOptions", {}
    out = ("int8", 2.0**-4, 3)
    fields = file_of("BATCH_MATMUL", [given], (1, 6, 8, 8), (0.1251, 5), options, out)
    (graph,) = fields["subgraphs"]
    xs = [drawn()]
    if by == "activations":
        graph["inputs"], graph["tensors"][1]["buffer"] = [0, 1], 0
        xs.append(other)
    fields["description"] = DESCRIPTION["float32"]
    path, again = tmp_path / "m.tflite", tmp_path / "again.tflite"
    path.write_bytes(SCHEMA.encode("Model", fields))
    ((want,),) = run(path.read_bytes(), [xs])
    request = Request(PIPELINE, "litert", {"recovery": False}, calibration=[tuple(xs)])
    job = prepare_job(str(path), request)
    levels = rewrite(job.program, job.pipeline, job.context(plan_job(job, request.stages)))
    assert np.array_equal(XlaExecutable(levels["integer"])(*xs)[0], want)
    jq.export(str(path), again, target="litert", calibration=[tuple(xs)])
    assert np.array_equal(run(again.read_bytes(), [xs])[0][0], want)


@pytest.mark.usefixtures("quick_xla")
def test_the_largest_codes_and_their_places(tmp_path: Path) -> None:
    """The first of equal ones comes first."""
    fields = file_of("TOPK_V2", [(np.array(5, np.int32), None)], (*X[:3], 5), (0.05, 3), ())
    (graph,) = fields["subgraphs"]
    graph["tensors"].append({"shape": [*X[:3], 5], "type": 2, "buffer": 0, "name": "at"})
    graph["operators"][0]["outputs"] = graph["outputs"] = [2, 3]
    path, x = tmp_path / "m.tflite", drawn() // 16
    path.write_bytes(SCHEMA.encode("Model", fields))
    (want,) = run(path.read_bytes(), [[x]])
    job = prepare_job(str(path), request := Request(PIPELINE, TARGET, {"recovery": False}))
    levels = rewrite(job.program, job.pipeline, job.context(plan_job(job, request.stages)))
    for a, b in zip(XlaExecutable(levels["integer"])(x), want, strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(jq.UserError, match=r"^TopK has no form .*; cut the model there$"):
        jq.export(str(path), tmp_path / "again.tflite", target=TARGET, calibration=[(x,)])


@pytest.mark.parametrize("suffix", ["tflite", "onnx"])
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("image")][:2])
def test_images_that_are_resized_are_exported(name: str, suffix: str, tmp_path: Path) -> None:
    """In the int32 arithmetic of their codes."""
    path, again = tmp_path / "m.tflite", tmp_path / f"again.{suffix}"
    path.write_bytes(SCHEMA.encode("Model", CASES[name]))
    target = {"target": TARGET} if suffix == "tflite" else {}
    found = jq.export(str(path), again, calibration=[(drawn(),)], verify=True, **target)
    assert found["same"] == found["outputs"] > 1000


WINDOW = {"stride_d": 2, "stride_h": 1, "stride_w": 3, "dilation_d": 1, "dilation_h": 1}
WINDOW |= {"dilation_w": 1, "activation": 1}


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize(
    ("kind", "constant", "shape", "options"),
    [
        ("CUMSUM", 1, X, ("CumsumOptions", {"exclusive": True})),
        ("CUMSUM", -2, X, ("CumsumOptions", {"reverse": True})),
        ("REDUCE_PROD", [1, 3], (1, 8), ("ReducerOptions", {})),
        ("CONV_3D", (2, 3, 2, 8, 5), (1, 1, 6, 1, 5), ("Conv3DOptions", WINDOW)),
        ("CONV_3D", (2, 2, 2, 4, 6), (1, 1, 5, 1, 6), ("Conv3DOptions", WINDOW | {"padding": 1})),
    ],
)
def test_operators_of_floats(
    kind: str, constant: Any, shape: Any, options: Any, tmp_path: Path
) -> None:
    """Whole numbers have sums that are exact in any order."""
    rng, x = np.random.default_rng(3), drawn().astype(np.float32) // 60
    filters = kind == "CONV_3D"
    given = rng.integers(-5, 6, constant) if filters else constant
    fields = file_of(
        *(kind, [(np.asarray(given, "f4" if filters else "i4"), None)], shape, (1, 0), options),
        ("float32", 1, 0),
    )
    if filters:
        x = x.reshape(1, 2, 6, 4, -1)[..., : constant[3]]
        fields["subgraphs"][0]["tensors"][0]["shape"] = list(x.shape)
    for tensor in fields["subgraphs"][0]["tensors"]:
        tensor.pop("quantization", None)
    fields["operator_codes"][0]["version"] = 1
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", fields))
    ((want,),) = run(path.read_bytes(), [[x]])
    (got,) = XlaExecutable(jq.trace(str(path)).program)(x)
    assert np.array_equal(got, want) and got.dtype == want.dtype


@pytest.mark.parametrize("codes", [coded(0.03, 3), SCALES | {"axis": 0}, None])
def test_rows_of_a_table_are_looked_up(codes: dict[str, Any] | None, tmp_path: Path) -> None:
    """Codes of one scale stay codes; those of rows with scales of their own become numbers."""
    table = np.random.default_rng(3).integers(-127, 128, (6, 5)).astype(np.int8)
    kept = codes is not None and "axis" not in codes
    given = table if codes else table.astype(np.float32)
    out = ("int8", 0.03, 3) if kept else ("float32", 1, 0)
    fields = file_of("EMBEDDING_LOOKUP", [(given, codes)], (4, 5), (0.03, 3), (), out)
    fields["operator_codes"][0]["version"] = 3
    source, _, result = fields["subgraphs"][0]["tensors"]
    source |= {"shape": [4], "type": TYPES["int32"]}
    for tensor in [source] if kept else [source, result]:
        del tensor["quantization"]
    path, rows = tmp_path / "m.tflite", np.array([4, 0, 5, 4], np.int32)
    path.write_bytes(SCHEMA.encode("Model", fields))
    ((want,),) = run(path.read_bytes(), [[rows]])
    (got,) = XlaExecutable(jq.trace(str(path)).program)(rows)
    assert np.array_equal(got, want) and got.dtype == want.dtype


def test_a_file_of_codes_is_compared_without_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", CASES["dense"]))
    found = jq.compare(str(path), pipeline="int8-static", settings={"recovery": False})
    assert "random codes" in caplog.text and found.to_dict()["outputs"][0]["cosine"] > 0.99


def test_a_pool_is_written_for_onnx(tmp_path: Path) -> None:
    """A kernel's own rounding is no form of it; ties are named."""
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", CASES["tiles"]))
    written = jq.export(str(path), tmp_path / "m.onnx", target="onnx-qdq")
    assert list(written["operators"]) == ["sum_pool"] and len(written["near_ties"]) == 1


def test_codes_of_uint8_are_written(tmp_path: Path) -> None:
    """The last QUANTIZE of many files; no ranges are asked for, since the file has them."""
    fields = file_of("QUANTIZE", [], X, (0.05, 131), ("QuantizeOptions", {}))
    fields["subgraphs"][0]["tensors"][-1]["type"] = 3
    files = [tmp_path / "m.tflite", tmp_path / "again.tflite"]
    files[0].write_bytes(SCHEMA.encode("Model", fields))
    jq.export(str(files[0]), files[1], target=TARGET)
    x = np.random.default_rng(1).integers(-128, 128, X).astype(np.int8)
    want, got = (run(path.read_bytes(), [[x]]) for path in files)
    assert np.array_equal(got[0][0], want[0][0]) and got[0][0].dtype == np.uint8
    with pytest.raises(jq.UserError, match="uint8 has no form in TOSA"):
        jq.export(str(files[0]), tmp_path / "m.tosa")


def test_kernels_round_a_dense_layer_once(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(SCHEMA.encode("Model", CASES["dense"]))
    x = np.random.default_rng(1).integers(-128, 128, X).astype(np.int8)
    compiled = jq.compile(
        str(path), PIPELINE, TARGET, [(x,)], settings={"recovery": False}, measure=False
    )
    ((want,),) = run(path.read_bytes(), [[x]])
    assert np.array_equal(np.asarray(compiled(x)["y"]), want)
    assert any(op["kernel"] for op in compiled.manifest.ops)


def test_a_shape_that_a_tensor_states_is_not_read() -> None:
    """Its operators may be any, such as SHAPE and PACK."""
    fields = CASES["pool"]
    unknown = {"deprecated_builtin_code": 83, "version": 1, "builtin_code": 83}
    reshape = {"deprecated_builtin_code": 22, "version": 1, "builtin_code": 22}
    (graph,) = fields["subgraphs"]
    tensors = [
        *graph["tensors"],
        {"shape": [2], "type": 2, "buffer": 0, "name": "shape"},
        {"shape": [8, 16], "type": 9, "buffer": 0, "name": "z", "quantization": coded(0.05, 3)},
    ]
    more = [
        {"opcode_index": 1, "inputs": [1], "outputs": [2]},
        {"opcode_index": 2, "inputs": [1, 2], "outputs": [3]},
    ]
    operators = [*graph["operators"], *more]
    graph = graph | {"tensors": tensors, "operators": operators, "outputs": [3]}
    codes = [*fields["operator_codes"], unknown, reshape]
    model = fields | {"operator_codes": codes, "subgraphs": [graph]}
    found = as_onnx(SCHEMA.encode("Model", model), Path("m.tflite"))
    assert [i.name for i in found.graph.output] == ["z"]
