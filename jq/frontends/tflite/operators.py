"""TFLite's operators as ONNX's: images are NHWC there, filters OHWI, and shapes are known."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto, helper

from jq.base.errors import UserError, known
from jq.frontends.tflite import moves
from jq.frontends.tflite.graph import Graph
from jq.frontends.tflite.moves import NCHW
from jq.frontends.tflite.schema import READ

SPLITS = {"SPLIT", "SPLIT_V", "UNPACK"}
_ACTIVATIONS = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
# Those that ONNX has with the same operands.
_EACH = {"LOGISTIC": "Sigmoid", "TANH": "Tanh", "RELU": "Relu", "HARD_SWISH": "HardSwish"}
_EACH |= {"ABS": "Abs", "NEG": "Neg", "EXP": "Exp", "SQRT": "Sqrt", "ELU": "Elu", "PRELU": "PRelu"}
_EACH |= {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "SIN": "Sin", "COS": "Cos"}
_EACH |= {"MAXIMUM": "Max", "MINIMUM": "Min"} | moves.CHOICES
_EACH |= dict.fromkeys(("CAST", *SPLITS, "QUANTIZE", "DEQUANTIZE"), "Identity")
_REDUCE = {"MEAN": "ReduceMean", "SUM": "ReduceSum"}
_REDUCE |= {"REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin"}
STATE = {"CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
Call = Callable[[Graph, list[int], int, Mapping[str, Any]], str]


def as_onnx(data: bytes, path: Path) -> ModelProto:
    """The ONNX model with Q/DQ of a TFLite file.

    Raises:
        UserError: it is damaged, or has operators that are not read (all are named at once).
    """
    return read_graph(data, path).proto()


def read_graph(data: bytes, path: Path) -> Graph:
    """The graph of a file, with its operators."""
    g = Graph(data, path)
    operators = _read(g)
    if unknown := sorted({kind for kind, _ in operators} - _CALLS.keys() - STATE):
        more = known(unknown[0], READ.values())
        raise UserError(f"{', '.join(unknown)}: not read", location=str(path), hint=more)
    for kind, fields in operators:
        inputs, outputs = ([int(v) for v in fields.get(k, ())] for k in ("inputs", "outputs"))
        options = fields.get("builtin_options", (None, {}))[1]
        if kind in STATE:
            _state(g, kind, inputs, outputs, options)
            continue
        if not outputs or not inputs:
            raise g.damaged(f"{kind} has no operands")
        g.op = g.names[outputs[0]] if 0 <= outputs[0] < len(g.names) else kind
        try:
            if kind in SPLITS:
                moves.split(g, inputs, outputs, options)
            elif kind == "CAST":
                kept = helper.np_dtype_to_tensor_dtype(g.dtype(outputs[0]))
                g.store(outputs[0], g.add("Cast", [g.raw(inputs[0])], to=kept))
            else:
                made = _CALLS[kind](g, inputs, outputs[0], options)
                g.put(outputs[0], _active(g, made, options), shaped=kind in _REDUCE)
        except UserError:
            raise
        except (IndexError, ValueError) as error:
            raise g.damaged(f"the operands of {kind} at {g.op} do not fit: {error}") from error
    return g


def _read(g: Graph) -> list[tuple[str, Mapping[str, Any]]]:
    """The operators whose results are read. A shape that a tensor states is not read."""
    found, live = [], set(map(int, g.main.get("outputs", ())))
    for kind, fields in reversed(g.operators()):
        if kind in STATE or live & set(map(int, fields.get("outputs", ()))):
            inputs = list(map(int, fields.get("inputs", ())))
            live |= set(inputs[:1] if kind == "RESHAPE" else inputs)
            found.append((kind, fields))
    return found[::-1]


def _active(g: Graph, value: str, options: Mapping[str, Any]) -> str:
    """The fused activation of an operator."""
    kind = options.get("activation", 0)
    if kind == 0:
        return value
    if kind not in _ACTIVATIONS:
        raise g.lacking(f"activation {kind}")
    limits = (g.constant(v, "f4") if v is not None else "" for v in _ACTIVATIONS[kind])
    return str(g.add("Clip", [value, *limits]))


def _each(name: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    if name == "NEG" and g.domain(y):
        raise g.lacking("NEG of codes, which kernels negate as they are,")
    domain = g.domain(y) if name == "PRELU" else ""
    return str(g.add(_EACH[name], map(g.real, x), domain=domain))


def _reduce(name: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A reduction whose axes are gone: `read_graph` puts those that are kept behind the codes."""
    given = [g.real(x[0]), g.constant(g.known(x[1]).reshape(-1), "i8")]
    if name == "MEAN" and g.domain(y):
        return str(g.add("Mean", given, domain=g.domain(y)))
    return str(g.add(_REDUCE[name], given, keepdims=0))


def _window(o: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"strides": [o.get("stride_h", 1), o.get("stride_w", 1)]}
    return found | {"auto_pad": "VALID" if o.get("padding", 0) else "SAME_UPPER"}


def _conv(order: list[int], g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A convolution by filters whose axes are brought to OIHW by `order`."""
    groups = g.shape(x[0])[3] // max(1, g.shape(x[1])[order[1]])
    given = [g.real(x[0], NCHW), g.real(x[1], order)]
    spread = [o.get("dilation_h", 1), o.get("dilation_w", 1)]
    made = g.add("Conv", given, group=groups, dilations=spread, **_window(o))
    return moves.image(g, made, *g.bias(x[2:3], x[0], x[1]))


def _transposed(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    stride = [o.get("stride_h", 1), o.get("stride_w", 1)]
    sizes = zip(g.shape(x[2])[1:3], stride, g.shape(x[1])[1:3], g.shape(y)[1:3], strict=True)
    extra = [(n - 1) * s + k - out for n, s, k, out in sizes]
    total = [max(0, e) for e in extra]
    pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    given = [g.real(x[2], NCHW), g.real(x[1], [3, 0, 1, 2])]
    more = [max(0, -e) for e in extra]
    made = g.add("ConvTranspose", given, strides=stride, pads=pads, output_padding=more)
    return moves.image(g, made, *g.bias(x[3:4], x[2], x[1]))


def _dense(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    if o.get("weights_format", 0):
        raise g.lacking("a shuffled weight")
    rows = g.constant([-1, g.shape(x[1])[1]], "i8")
    flat = g.add("Reshape", [g.real(x[0]), rows])
    made = g.add("MatMul", [flat, g.real(x[1], [1, 0])], domain=g.domain(y))
    for bias in g.bias(x[2:3], x[0], x[1]):
        made = g.add("Add", [made, bias])
    return moves.shaped(g, made, y)


def _product(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    given = []
    for i, key in zip(x, ("adj_x", "adj_y"), strict=False):
        axes = list(range(len(g.shape(i))))
        swapped = [*axes[:-2], axes[-1], axes[-2]]
        given.append(g.real(i, swapped) if o.get(key) else g.real(i))
    return str(g.add("MatMul", given))


def _pool(kind: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    window = [o.get("filter_height", 1), o.get("filter_width", 1)]
    how: dict[str, Any] = {"kernel_shape": window, **_window(o)}
    if kind == "AveragePool" and g.domain(y):
        return str(g.add(kind, [g.real(x[0])], domain=g.domain(y), **how))
    return moves.image(g, g.add(kind, [g.real(x[0], NCHW)], **how))


def _resize(mode: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    n, h, w, c = g.shape(y)
    half, corners = o.get("half_pixel_centers"), o.get("align_corners")
    at = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": at}
    if mode == "nearest":
        how["nearest_mode"] = "round_prefer_ceil" if half or corners else "floor"
    given = [g.real(x[0], NCHW), "", "", g.constant([n, c, h, w], "i8")]
    return moves.image(g, g.add("Resize", given, **how))


def _leaky(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A sum, in place of a choice between codes that were rescaled on their own."""
    value, zero = g.real(x[0]), g.constant(0, "f4")
    below = g.add("Mul", [g.add("Min", [value, zero]), g.constant(o.get("alpha", 0.0), "f4")])
    return str(g.add("Add", [g.add("Max", [value, zero]), below]))


def _softmax(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    beta = o.get("beta", 0.0)
    value = g.real(x[0])
    if beta != 1:
        value = g.add("Mul", [value, g.constant(beta, "f4")])
    return str(g.add("Softmax", [value], axis=-1))


def _state(g: Graph, kind: str, x: list[int], y: list[int], o: Mapping[str, Any]) -> None:
    """A variable: what is read first is an input of the model, what is assigned last a result."""
    try:
        if kind == "VAR_HANDLE":
            g.handles[y[0]] = o.get("shared_name", "")
        elif kind == "ASSIGN_VARIABLE":
            g.assigned[g.handles[x[0]]] = x[1]
        elif kind == "READ_VARIABLE" and (name := g.handles[x[0]]) in g.assigned:
            g.put(y[0], g.real(g.assigned[name]))
        elif kind == "READ_VARIABLE":
            g.states[name] = g.states.get(name, y[0])
            if g.states[name] != y[0]:
                g.put(y[0], g.real(g.states[name]))
    except (IndexError, KeyError) as error:
        raise g.damaged(f"{kind} has no variable") from error


_CALLS: dict[str, Call] = {name: partial(_each, name) for name in _EACH}
_CALLS |= {name: partial(_reduce, name) for name in _REDUCE}
_CALLS |= {
    "RESHAPE": lambda g, x, y, o: moves.shaped(g, g.real(x[0]), y),
    "PAD": moves.pad,
    "CONV_2D": partial(_conv, NCHW),
    "DEPTHWISE_CONV_2D": partial(_conv, [3, 0, 1, 2]),
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _product,
    "MAX_POOL_2D": partial(_pool, "MaxPool"),
    "AVERAGE_POOL_2D": partial(_pool, "AveragePool"),
    "RESIZE_BILINEAR": partial(_resize, "linear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(_resize, "nearest"),
    "SLICE": moves.part,
    "STRIDED_SLICE": moves.strided,
    "REVERSE_V2": moves.reverse,
    "CONCATENATION": lambda g, x, y, o: g.add("Concat", map(g.real, x), axis=o.get("axis", 0)),
    "NOT_EQUAL": lambda g, x, y, o: g.add("Not", [g.add("Equal", map(g.real, x))]),
    "PACK": moves.pack,
    "SPACE_TO_DEPTH": partial(moves.blocks, "SpaceToDepth"),
    "DEPTH_TO_SPACE": partial(moves.blocks, "DepthToSpace"),
    "BROADCAST_TO": lambda g, x, y, o: g.add(
        "Expand", [g.real(x[0]), g.constant(g.shape(y), "i8")]
    ),
    "RSQRT": lambda g, x, y, o: g.add("Reciprocal", [g.add("Sqrt", [g.real(x[0])])]),
    "SELECT": moves.select,
    "LOG": moves.logarithm,
    "SQUARE": lambda g, x, y, o: g.add("Mul", [g.real(x[0])] * 2),
    "SOFTMAX": _softmax,
    "GATHER": moves.gather,
    "RELU6": lambda g, x, y, o: _active(g, g.real(x[0]), {"activation": 3}),
    "RELU_N1_TO_1": lambda g, x, y, o: _active(g, g.real(x[0]), {"activation": 2}),
    "TRANSPOSE": lambda g, x, y, o: g.real(x[0], g.known(x[1]).reshape(-1).tolist()),
    "TILE": lambda g, x, y, o: g.add("Tile", [g.real(x[0]), g.constant(g.known(x[1]), "i8")]),
    "LEAKY_RELU": _leaky,
    "GELU": lambda g, x, y, o: g.add(
        "Gelu", [g.real(x[0])], approximate="tanh" if o.get("approximate") else "none"
    ),
}
_CALLS |= dict.fromkeys(("SQUEEZE", "EXPAND_DIMS"), _CALLS["RESHAPE"]) | {"PADV2": moves.pad}
