"""`.tflite` files as models: every operator against LiteRT's own kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.frontends.tflite.operators import as_onnx
from jq.frontends.tflite.schema import OPERATORS, READ, SCHEMA, TYPES
from jq.ir.oracle.xla import XlaExecutable
from tests.support.programs import evaluated

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
ort = pytest.importorskip("onnxruntime")

X = (1, 5, 6, 4)
RNG = np.random.default_rng(0)
NUMBERS = {name: number for number, name in READ.items()}
SAME, VALID = 0, 1


def w(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


STRIDES = {"stride_h": 2, "stride_w": 1}
# Operator, its operands behind (or, of some, in front of) an input of shape X, options, result.
CASES: list[tuple[str, list[np.ndarray], tuple[str, dict[str, Any]] | None, tuple[int, ...]]] = [
    (
        "CONV_2D",
        [w(3, 3, 2, 4), w(3)],
        ("Conv2DOptions", {**STRIDES, "padding": SAME, "dilation_h": 1, "dilation_w": 1}),
        (1, 3, 6, 3),
    ),
    (
        "CONV_2D",
        [w(3, 2, 2, 4), w(3)],
        ("Conv2DOptions", {**STRIDES, "padding": VALID, "activation": 3, "dilation_h": 2}),
        (1, 2, 5, 3),
    ),
    (
        "DEPTHWISE_CONV_2D",
        [w(1, 3, 3, 8), w(8)],
        (
            "DepthwiseConv2DOptions",
            {"stride_h": 1, "stride_w": 1, "depth_multiplier": 2, "activation": 1},
        ),
        (1, 5, 6, 8),
    ),
    ("FULLY_CONNECTED", [w(3, 4), w(3)], ("FullyConnectedOptions", {}), (30, 3)),
    ("ADD", [w(4)], ("AddOptions", {"activation": 2}), X),
    ("SUB", [w(1, 5, 6, 4)], ("SubOptions", {}), X),
    ("MEAN", [ints(1, 2)], ("ReducerOptions", {"keep_dims": False}), (1, 4)),
    ("REDUCE_MAX", [ints(3)], ("ReducerOptions", {"keep_dims": True}), (1, 5, 6, 1)),
    (
        "AVERAGE_POOL_2D",
        [],
        ("Pool2DOptions", {**STRIDES, "padding": SAME, "filter_height": 3, "filter_width": 2}),
        (1, 3, 6, 4),
    ),
    (
        "MAX_POOL_2D",
        [],
        ("Pool2DOptions", {**STRIDES, "padding": VALID, "filter_height": 2, "filter_width": 2}),
        (1, 2, 5, 4),
    ),
    ("SOFTMAX", [], ("SoftmaxOptions", {"beta": 0.5}), X),
    ("LOGISTIC", [], None, X),
    ("RELU6", [], None, X),
    ("HARD_SWISH", [], None, X),
    ("LEAKY_RELU", [], ("LeakyReluOptions", {"alpha": 0.3}), X),
    ("PAD", [ints((0, 0), (1, 0), (0, 2), (0, 0))], None, (1, 6, 8, 4)),
    (
        "STRIDED_SLICE",
        [ints(0, 1, 9, 2), ints(0, 9, 0, 0), ints(1, 2, -1, 1)],
        ("StridedSliceOptions", {"begin_mask": 1, "end_mask": 5, "shrink_axis_mask": 8}),
        (1, 2, 6),
    ),
    ("TRANSPOSE", [ints(0, 3, 1, 2)], ("TransposeOptions", {}), (1, 4, 5, 6)),
    ("SLICE", [ints(0, 1, 0, 1), ints(1, 2, -1, 3)], ("SliceOptions", {}), (1, 2, 6, 3)),
    ("REVERSE_V2", [ints(2)], ("ReverseV2Options", {}), X),
    ("GATHER", [ints(3, 0, 3)], ("GatherOptions", {"axis": 3}), (1, 5, 6, 3)),
    (
        "RESIZE_BILINEAR",
        [ints(10, 9)],
        ("ResizeBilinearOptions", {"half_pixel_centers": True}),
        (1, 10, 9, 4),
    ),
    (
        "RESIZE_NEAREST_NEIGHBOR",
        [ints(10, 9)],
        ("ResizeNearestNeighborOptions", {"half_pixel_centers": True}),
        (1, 10, 9, 4),
    ),
    ("ARG_MAX", [ints(2)], ("ArgMaxOptions", {"output_type": 2}), (1, 5, 4)),
    ("ARG_MIN", [ints(-1)], ("ArgMinOptions", {"output_type": 2}), (1, 5, 6)),
    ("FLOOR", [], None, X),
    ("SIGN", [], None, X),
    ("SQUARED_DIFFERENCE", [w(4)], None, X),
    ("LOG_SOFTMAX", [], None, X),
    ("L2_NORMALIZATION", [], ("L2NormOptions", {}), X),
    (
        "MIRROR_PAD",
        [ints((0, 0), (2, 1), (0, 3), (0, 0))],
        ("MirrorPadOptions", {"mode": 0}),
        (1, 8, 9, 4),
    ),
    (
        "MIRROR_PAD",
        [ints((0, 0), (2, 1), (0, 3), (1, 0))],
        ("MirrorPadOptions", {"mode": 1}),
        (1, 8, 9, 5),
    ),
    ("SPACE_TO_BATCH_ND", [ints(2, 3), ints((1, 0), (2, 1))], None, (6, 3, 3, 4)),
    ("GATHER_ND", [ints((0, 3), (0, 1))], None, (2, 6, 4)),
    ("BATCH_MATMUL", [w(1, 5, 3, 4)], ("BatchMatMulOptions", {"adj_y": True}), (1, 5, 6, 3)),
]


def file_of(kind: str, operands: list[np.ndarray], options: Any, shape: tuple[int, ...]) -> bytes:
    arrays = [None, *operands, None]
    shapes = [X, *(a.shape for a in operands), shape]
    tensors = [
        {
            "shape": list(s),
            "type": 2 if a is not None and a.dtype == np.int32 else 0,
            "buffer": i,
            "name": f"t{i}",
        }
        for i, (a, s) in enumerate(zip(arrays, shapes, strict=True))
    ]
    buffers = [{} if a is None else {"data": np.frombuffer(a.tobytes(), np.uint8)} for a in arrays]
    last = len(tensors) - 1
    op: dict[str, Any] = {"opcode_index": 0, "inputs": list(range(last)), "outputs": [last]}
    if options is not None:
        op["builtin_options"] = options
    number = NUMBERS[kind]
    version = OPERATORS.get(kind, (0, 1))[1]
    code = {"deprecated_builtin_code": min(number, 127), "version": version}
    graph = {"tensors": tensors, "inputs": [0], "outputs": [last], "operators": [op]}
    codes = [{**code, "builtin_code": number}]
    model = {"version": 3, "operator_codes": codes, "subgraphs": [graph], "buffers": buffers}
    return SCHEMA.encode("Model", model)


@pytest.mark.parametrize("case", CASES, ids=[c[0].lower() for c in CASES])
def test_operators_are_those_of_litert(case: Any, tmp_path: Path) -> None:
    data, x = file_of(*case), 3 * w(*X)
    want = peer_of(data, x)
    model = as_onnx(data, Path("m.tflite"))
    if any(node.domain for node in model.graph.node):  # it is not ONNX's
        (got,) = ours_of(data, tmp_path, x)
    else:
        (got,) = ort.InferenceSession(model.SerializeToString()).run(None, {"t0": x})
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # sums of float32


def ours_of(data: bytes, folder: Path, *given: np.ndarray) -> list[np.ndarray]:
    path = folder / "m.tflite"
    path.write_bytes(data)
    return [np.asarray(y) for y in XlaExecutable(jq.trace(str(path)).program)(*given)]


def of_integers(
    kind: str, operands: list[np.ndarray], options: Any, *given: tuple[str, tuple[int, ...]]
) -> bytes:
    """A file whose inputs and result (the last of `given`) have these types and shapes; constants
    are operands behind the inputs, or in front of the last."""
    model = SCHEMA.decode("Model", file_of(kind, operands, options, given[-1][1]))
    (graph,), count = model["subgraphs"], len(given) - 1
    first, *constants, last = graph["tensors"]
    inputs = [first | {"name": f"x{i}"} for i in range(count)]
    for tensor, (dtype, shape) in zip((*inputs, last), given, strict=True):
        tensor |= {"type": TYPES[dtype], "shape": list(shape)}
    for tensor, array in zip(constants, operands, strict=True):
        tensor["type"] = TYPES[array.dtype.name]
    last["buffer"] = 0
    graph["tensors"], end = [*inputs, *constants, last], count + len(constants)
    model["buffers"] = model["buffers"][: 1 + len(constants)]
    graph["inputs"], graph["outputs"] = list(range(count)), [end]
    graph["operators"][0] |= {"inputs": list(range(end)), "outputs": [end]}
    return SCHEMA.encode("Model", model)


INDEX = ("int32", (4, 3))
INTEGERS: dict[str, tuple[str, list[np.ndarray], Any, list[tuple[str, tuple[int, ...]]]]] = {
    **{
        f"one hot along {axis}": (
            *("ONE_HOT", [ints(5)[0], np.float32(7), np.float32(-2)]),
            *(("OneHotOptions", {"axis": axis}), [INDEX, ("float32", shape)]),
        )
        for axis, shape in ((-1, (4, 3, 5)), (0, (5, 4, 3)), (1, (4, 5, 3)))
    },
    **{
        f"{kind} of {dtype}": (kind, [], None, [(dtype, (40,))] * 3)
        for kind in ("FLOOR_MOD", "FLOOR_DIV")
        for dtype in ("int32", "float32")
    },
    "angle": ("ATAN2", [], None, [("float32", (40,))] * 3),
    "inverse root": ("RSQRT", [], None, [("float32", (40,))] * 2),
    "shape": ("SHAPE", [], ("ShapeOptions", {"out_type": 2}), [INDEX, ("int32", (2,))]),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_operators_of_other_types_are_those_of_litert(name: str, tmp_path: Path) -> None:
    """Indices beyond the ends and negative divisors among them."""
    kind, operands, options, given = INTEGERS[name]
    data = of_integers(kind, operands, options, *given)
    xs = [
        np.where((v := RNG.integers(-2, 7, shape)) == 0, -3, v).astype(dtype)
        * (np.float32(1.37) if dtype == "float32" else 1)
        for dtype, shape in given[:-1]
    ]
    if name == "inverse root":
        xs = [np.abs(x) for x in xs]
    (got,), want = ours_of(data, tmp_path, *xs), peer_of(data, *xs)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6 if kind in ("ATAN2", "RSQRT") else 0)
    assert len(np.unique(want)) > 1


def test_rows_without_length_stay_as_they_are(tmp_path: Path) -> None:
    data = of_integers("L2_NORMALIZATION", [], None, *[("float32", (3, 4))] * 2)
    x = np.float32([[0] * 4, [3e-8, 0, -4e-8, 0], [3, 0, -4, 0]])
    (got,) = ours_of(data, tmp_path, x)
    np.testing.assert_allclose(got, peer_of(data, x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_scattered_updates_of_one_place_are_added(dtype: str, tmp_path: Path) -> None:
    operands = [ints([1], [3], [1]), ints(5, 4)]
    data = of_integers("SCATTER_ND", operands, None, (dtype, (3, 4)), (dtype, (5, 4)))
    model = SCHEMA.decode("Model", data)
    model["subgraphs"][0]["operators"][0]["inputs"] = [1, 0, 2]
    data, x = SCHEMA.encode("Model", model), RNG.integers(-9, 9, (3, 4)).astype(dtype)
    (got,) = ours_of(data, tmp_path, x)
    np.testing.assert_array_equal(got, peer_of(data, x))


def peer_of(data: bytes, *given: np.ndarray) -> np.ndarray:
    kernels = litert.OpResolverType.BUILTIN_REF
    peer = litert.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    peer.allocate_tensors()
    for detail, array in zip(peer.get_input_details(), given, strict=True):
        peer.set_tensor(detail["index"], array)
    peer.invoke()
    return np.asarray(peer.get_tensor(peer.get_output_details()[0]["index"]))


def test_the_logarithm_of_a_negative_float_is_no_number() -> None:
    data, x = file_of("LOG", [], None, X), w(*X)
    session = ort.InferenceSession(as_onnx(data, Path("m.tflite")).SerializeToString())
    (got,) = session.run(None, {"t0": x})
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, np.log(x), rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(peer_of(data, x)))


def test_blocks_of_a_batch_become_places() -> None:
    """Borders are cut off behind."""
    model = SCHEMA.decode("Model", file_of(*CASES[[c[0] for c in CASES].index("GATHER_ND")]))
    (graph,) = model["subgraphs"]
    block, crops = ints(2, 3), ints((1, 0), (0, 2))
    model["buffers"] = [
        {},
        *({"data": np.frombuffer(a.tobytes(), np.uint8)} for a in (block, crops)),
    ]
    shapes = [(12, 3, 2, 4), block.shape, crops.shape, (2, 5, 4, 4)]
    graph["tensors"] = [
        {"shape": list(s), "type": 2 * (i in (1, 2)), "buffer": i % 3, "name": f"t{i}"}
        for i, s in enumerate(shapes)
    ]
    model["operator_codes"] = [{"deprecated_builtin_code": 37, "version": 1, "builtin_code": 37}]
    graph |= {"operators": [{"opcode_index": 0, "inputs": [0, 1, 2], "outputs": [3]}]}
    graph["outputs"] = [3]
    data, x = SCHEMA.encode("Model", model), w(*shapes[0])
    session = ort.InferenceSession(as_onnx(data, Path("m.tflite")).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"t0": x})[0], peer_of(data, x))


@pytest.mark.parametrize("condition", [(4,), (4, 4)], ids=["rows", "all"])
def test_a_condition_chooses_whole_rows(condition: tuple[int, ...]) -> None:
    """SELECT's vector of conditions stands along the first axis, not along the last."""
    shapes = {"c": condition, "a": (4, 4), "b": (4, 4), "y": (4, 4)}
    tensors = [
        {"shape": list(s), "type": 6 * (n == "c"), "buffer": 0, "name": n}
        for n, s in shapes.items()
    ]
    op = {"opcode_index": 0, "inputs": [0, 1, 2], "outputs": [3]}
    graph = {"tensors": tensors, "inputs": [0, 1, 2], "outputs": [3], "operators": [op]}
    code = {"deprecated_builtin_code": 64, "version": 1, "builtin_code": 64}
    model = {"version": 3, "operator_codes": [code], "subgraphs": [graph], "buffers": [{}]}
    data = SCHEMA.encode("Model", model)
    given = RNG.integers(0, 2, condition).astype(bool), w(4, 4), w(4, 4)
    session = ort.InferenceSession(as_onnx(data, Path("m.tflite")).SerializeToString())
    (got,) = session.run(None, dict(zip("cab", given, strict=True)))
    np.testing.assert_array_equal(got, peer_of(data, *given))


def with_state() -> bytes:
    """`v = v + x`, the variable's name being `sum`, with 3 at first; x is split into two parts."""
    kinds = ["CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE", "SPLIT_V"]
    codes = [
        {"deprecated_builtin_code": min(n, 127), "builtin_code": n, "version": 1}
        for n in map(NUMBERS.__getitem__, kinds)
    ]
    handle = {"opcode_index": 1, "inputs": [], "outputs": [0]}
    handle["builtin_options"] = ("VarHandleOptions", {"container": "", "shared_name": "sum"})
    tensor = {"name": "sum", "shape": [], "type": 13, "buffer": 0}

    def floats(name: str, n: int, buffer: int = 0) -> dict[str, Any]:
        return {"name": name, "shape": [1, n], "type": 0, "buffer": buffer}

    def op(kind: str, inputs: list[int], outputs: list[int], *options: Any) -> dict[str, Any]:
        found = {"opcode_index": kinds.index(kind), "inputs": inputs, "outputs": outputs}
        return found | ({"builtin_options": options} if options else {})

    sizes = {"name": "sizes", "shape": [2], "type": 2, "buffer": 2}
    axis = {"name": "axis", "shape": [], "type": 2, "buffer": 3}
    parts = [floats("first", 1), floats("last", 3)]
    main = {
        "tensors": [tensor, floats("x", 4), floats("r", 4), floats("y", 4), sizes, axis, *parts],
        "inputs": [1],
        "outputs": [6, 7],
        "operators": [
            op("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1}),
            handle,
            op("READ_VARIABLE", [0], [2]),
            op("ADD", [1, 2], [3], "AddOptions", {}),
            op("ASSIGN_VARIABLE", [0, 3], []),
            op("SPLIT_V", [3, 4, 5], [6, 7], "SplitVOptions", {"num_splits": 2}),
        ],
    }
    first = {"tensors": [tensor, floats("first", 4, 1)], "inputs": [], "outputs": []}
    first["operators"] = [handle, op("ASSIGN_VARIABLE", [0, 1], [])]
    data = [np.full(4, 3, np.float32), ints(1, 3), ints(1)]
    buffers = [{}, *({"data": np.frombuffer(a.tobytes(), np.uint8)} for a in data)]
    fields = {"version": 3, "operator_codes": codes, "subgraphs": [main, first]}
    return SCHEMA.encode("Model", fields | {"buffers": buffers})


def test_a_variable_is_an_input_and_a_result() -> None:
    data = with_state()
    peer = litert.Interpreter(model_content=data)
    peer.allocate_tensors()
    session = ort.InferenceSession(as_onnx(data, Path("m.tflite")).SerializeToString())
    assert [i.name for i in session.get_inputs()] == ["x", "r"]
    state = np.full((1, 4), 3, np.float32)
    for _ in range(3):
        x = w(1, 4)
        peer.set_tensor(peer.get_input_details()[0]["index"], x)
        peer.invoke()
        *got, state = session.run(None, {"x": x, "r": state})
        for value, detail in zip(got, peer.get_output_details(), strict=True):
            assert np.array_equal(value, peer.get_tensor(detail["index"]))


def test_blocks_that_do_not_divide_are_refused() -> None:
    case = ("SPACE_TO_BATCH_ND", [ints(4, 4), ints(0, 0, 0, 0).reshape(2, 2)], None, (9, 1, 1, 3))
    with pytest.raises(jq.UserError, match="do not divide what SPACE_TO_BATCH_ND pads at"):
        as_onnx(file_of(*case), Path("m.tflite"))


def test_operators_that_are_not_read_are_named() -> None:
    data = file_of("RELU6", [], None, X)
    code = NUMBERS["RELU6"].to_bytes(4, "little")
    assert data.count(code) >= 1
    with pytest.raises(jq.UserError, match="operator 127: not read"):
        as_onnx(data.replace(code, (127).to_bytes(4, "little")), Path("m.tflite"))
    for kind in ("WHILE", "SVDF", "NON_MAX_SUPPRESSION_V5", "UNIDIRECTIONAL_SEQUENCE_LSTM"):
        with pytest.raises(jq.UserError, match=f"^{kind}: not read") as error:
            as_onnx(data.replace(code, NUMBERS[kind].to_bytes(4, "little")), Path("m.tflite"))
        assert error.value.op and len(str(error.value)) < 200
        assert "end the model in front" in str(error.value)


def test_a_shape_that_a_tensor_states_is_not_read() -> None:
    """Its operators may be any, such as SHAPE and PACK."""
    model = SCHEMA.decode("Model", file_of("RELU6", [], None, X))
    (graph,) = model["subgraphs"]
    graph["tensors"] += [
        {"shape": [2], "type": 2, "buffer": 0, "name": "shape"},
        {"shape": [30, 4], "type": 0, "buffer": 0, "name": "z"},
    ]
    for number in (83, 22):
        model["operator_codes"] += [{"deprecated_builtin_code": number, "version": 1}]
    graph["operators"] += [
        {"opcode_index": 1, "inputs": [1], "outputs": [2]},
        {"opcode_index": 2, "inputs": [1, 2], "outputs": [3]},
    ]
    graph["outputs"] = [3]
    found = as_onnx(SCHEMA.encode("Model", model), Path("m.tflite"))
    assert [i.name for i in found.graph.output] == ["z"]


def test_scales_of_another_kind_are_refused() -> None:
    """By blocks, for one: what a union holds whose tables are not known."""
    model = SCHEMA.decode("Model", file_of("RELU6", [], None, X))
    (x, _) = model["subgraphs"][0]["tensors"]
    x |= {"type": 9, "quantization": {"details": ("AddOptions", {})}}
    writer = replace(SCHEMA, unions=SCHEMA.unions | {"details": ["", "AddOptions"]})
    with pytest.raises(jq.UserError, match="not read of TFLite files"):
        as_onnx(writer.encode("Model", model), Path("m.tflite"))


def test_a_tensor_may_have_any_name() -> None:
    """Also those that constants and results have, where the graph becomes ONNX."""
    data = file_of("RELU6", [], None, X)
    model = as_onnx(data, Path("m.tflite"))
    ours = [t.name for t in model.graph.initializer] + [model.graph.node[0].output[0]]
    for name in ours:
        fields = SCHEMA.decode("Model", data)
        fields["subgraphs"][0]["tensors"][0]["name"] = name
        graph = as_onnx(SCHEMA.encode("Model", fields), Path("m.tflite")).graph
        made = [t.name for t in graph.initializer] + [n.output[0] for n in graph.node]
        assert graph.input[0].name not in made


def conv(p: Any, x: jax.Array) -> jax.Array:
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(jax.lax.conv_general_dilated(x, p, (1, 1), "SAME", dimension_numbers=dims))


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize(
    ("apply", "shape"),
    [(conv, (3, 3, 4, 8)), (lambda p, x: x @ p, (4, 5)), (lambda p, x: x.mean((1, 2)), (1,))],
    ids=["conv", "dense", "mean"],
)
def test_codes_are_those_of_litert(apply: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    """One layer of int8: a code next to a tie, which is rounded once here and twice there, may be
    its neighbour."""
    rng = np.random.default_rng(0)
    params = rng.standard_normal(shape, np.float32) / 4
    samples = [(rng.standard_normal((2, 6, 6, 4), np.float32),) for _ in range(2)]
    path = tmp_path / "m.tflite"
    model = jq.Model(apply, params, samples[0], calibration=samples)
    jq.export(model, path, target="litert-reference")
    program = jq.trace(str(path)).program
    assert [(s.dtype, s.shape) for s in program.inputs] == [("int8", (2, 6, 6, 4))]
    from jq.device.forms.tflite import run

    x = rng.integers(-128, 128, (2, 6, 6, 4)).astype(np.int8)
    ((want,),), (got,) = run(path.read_bytes(), [[x]]), evaluated(program, x)
    assert np.abs(np.int32(got) - np.int32(want)).max() <= 1
    assert len(np.unique(want)) > 4


@pytest.mark.usefixtures("quick_xla")
def test_a_file_that_is_exported_again_gives_the_same_codes(tmp_path: Path) -> None:
    """Its own quantization is kept between layers: no range is calibrated, nothing rescaled."""
    from jq.device.forms.tflite import run

    rng = np.random.default_rng(0)
    params = [rng.standard_normal((3, 3, 4, 4), np.float32) / 4 for _ in range(3)]
    samples = [(rng.standard_normal((1, 6, 6, 4), np.float32),) for _ in range(2)]
    model = jq.Model(
        lambda p, x: conv(p[2], conv(p[1], conv(p[0], x))), params, samples[0], calibration=samples
    )
    files = [tmp_path / "m.tflite", tmp_path / "again.tflite"]
    jq.export(model, files[0], target="litert-reference")
    x = rng.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    jq.export(str(files[0]), files[1], target="litert-reference", calibration=[(x // 9,)])
    ((want,),), ((got,),) = (run(path.read_bytes(), [[x]]) for path in files)
    assert np.array_equal(got, want)
    assert len(np.unique(want)) > 4


@pytest.mark.usefixtures("quick_xla")
def test_biases_and_activations_belong_to_their_product(tmp_path: Path) -> None:
    """Also where an image is one pixel, so that its transposes move nothing: nothing is rescaled
    between a product and the codes that the file states."""
    from jq.device.forms.tflite import run

    rng = np.random.default_rng(0)
    dims = ("NHWC", "HWIO", "NHWC")

    def layer(w: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=dims)
        return jax.nn.relu(y + b)

    params = [(rng.standard_normal((3, 1, 4, 4), np.float32) / 2, w(4)) for _ in range(2)]
    samples = [(rng.standard_normal((1, 5, 1, 4), np.float32),) for _ in range(2)]
    model = jq.Model(
        lambda p, x: layer(*p[1], layer(*p[0], x)), params, samples[0], calibration=samples
    )
    files = [tmp_path / "m.tflite", tmp_path / "again.tflite"]
    jq.export(model, files[0], target="litert-reference")
    x = rng.integers(-128, 128, (1, 5, 1, 4)).astype(np.int8)
    found = jq.export(str(files[0]), files[1], target="litert-reference", calibration=[(x // 9,)])
    assert found["operators"]["conv2d"] == 2
    assert not {"rescale", "table"} & set(found["operators"])
    ((want,),), ((got,),) = (run(path.read_bytes(), [[x]]) for path in files)
    assert np.array_equal(got, want)
