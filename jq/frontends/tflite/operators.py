"""TFLite's operators as ONNX's: images are NHWC there, filters OHWI, and shapes are known."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from jq.base.errors import UserError
from jq.frontends.onnx.registry import TFLITE
from jq.frontends.tflite import moves, products
from jq.frontends.tflite.differences import COMPARED, tell
from jq.frontends.tflite.graph import Graph
from jq.frontends.tflite.moves import NCHW
from jq.frontends.tflite.schema import ALIKE

_SEVERAL = {"TOPK_V2": moves.largest} | dict.fromkeys(("SPLIT", "SPLIT_V", "UNPACK"), moves.split)
_ACTIVATIONS = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_EACH = ALIKE | dict.fromkeys(("CAST", *_SEVERAL, "QUANTIZE", "DEQUANTIZE"), "Identity")
_REDUCE = {"MEAN": "ReduceMean", "SUM": "ReduceSum"}
_REDUCE |= {f"REDUCE_{name.upper()}": f"Reduce{name}" for name in ("Max", "Min", "Prod")}
_SHAPED = {*_REDUCE, "FULLY_CONNECTED"}  # their own shape stands behind the codes
_STATED = {"RESHAPE": 1, "BROADCAST_TO": 1, "FILL": 0, "SHAPE": 0}  # operands that are not read
STATE = {"CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
Call = Callable[[Graph, list[int], int, Mapping[str, Any]], str]


def as_onnx(data: bytes, path: Path) -> ModelProto:
    """The ONNX model with Q/DQ of a TFLite file.

    Raises:
        UserError: it is damaged, or has operators that are not read (all are named at once)."""
    return read_graph(data, path).proto()


def read_graph(data: bytes, path: Path) -> Graph:
    """The graph of a file, with its operators."""
    g = Graph(data, path)
    operators = _read(g)
    if unknown := [(k, fields) for k, fields in operators if k not in _CALLS.keys() | STATE]:
        kinds = ", ".join(sorted({kind for kind, _ in unknown}))
        outputs = unknown[0][1].get("outputs", ())
        first = ", ".join(g.names[i] for i in outputs if 0 <= i < len(g.names))
        hint = "end the model in front and compute it outside, or convert the model without it"
        hint += " (recurrent layers unrolled)"
        raise UserError(f"{kinds}: not read", op=first, location=str(path), hint=hint)
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
            if kind in _SEVERAL:
                _SEVERAL[kind](g, inputs, outputs, options)
            elif kind == "RESIZE_BILINEAR" and g.domain(y := outputs[0]) and g.dtype(y).kind == "i":
                g.store(y, _interpolated(g, inputs, options))
            elif kind == "QUANTIZE" and not g.domain(inputs[0]):
                y = outputs[0]
                g.store(y, g.codes(g.real(inputs[0]), y, overload=TFLITE))
            elif kind == "CAST":
                kept = helper.np_dtype_to_tensor_dtype(g.dtype(outputs[0]))
                g.store(outputs[0], g.add("Cast", [g.raw(inputs[0])], to=kept))
            else:
                made = _CALLS[kind](g, inputs, outputs[0], options)
                g.put(outputs[0], _active(g, made, options), shaped=kind in _SHAPED)
        except UserError:
            raise
        except (IndexError, ValueError) as error:
            raise g.damaged(f"the operands of {kind} at {g.op} do not fit: {error}") from error
    tell(g, operators)
    return g


def _read(g: Graph) -> list[tuple[str, Mapping[str, Any]]]:
    """The operators whose results are read. A shape that a tensor states is not read."""
    found, live = [], set(map(int, g.main.get("outputs", ())))
    for kind, fields in reversed(g.operators()):
        if kind in STATE or live & set(map(int, fields.get("outputs", ()))):
            inputs = enumerate(map(int, fields.get("inputs", ())))
            live |= {v for i, v in inputs if i != _STATED.get(kind)}
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
    return g.own(_EACH[name], x, y)


def _own(kind: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """An operator that is not ONNX's of floats either."""
    return str(g.add(kind, [g.real(x[0])], domain=TFLITE))


def _of_two(name: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """An operator whose kernels compute with codes of both: a constant of one code is repeated, as
    a number alone would be a factor, or part of a table."""
    return g.own(name, [g.repeated(i, g.shape(y)) for i in x], y)


def _compared(name: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    given, kind = [g.repeated(i, g.shape(y)) for i in x], ALIKE.get(name, "Equal")
    made = g.add(kind, given, overload=g.domain(x[0]))
    return str(g.add("Not", [made]) if name == "NOT_EQUAL" else made)


def _squared(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    if g.domain(y):
        return _of_two("SquaredDifference", g, x, y, o)
    return str(g.add("Mul", [g.add("Sub", map(g.real, x))] * 2))


def _reduce(name: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A reduction whose axes are gone: `read_graph` puts those that are kept behind the codes."""
    given = [g.real(x[0]), g.constant(g.known(x[1]).reshape(-1), "i8")]
    if name == "MEAN" and g.domain(y):
        return str(g.add("Mean", given, domain=g.domain(y)))
    return str(g.add(_REDUCE[name], given, keepdims=0))


def _resize(mode: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    n, h, w, c = g.shape(y)
    half, corners = o.get("half_pixel_centers"), o.get("align_corners")
    at = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": at}
    if mode == "nearest":
        how["nearest_mode"] = "round_prefer_ceil" if half or corners else "floor"
    given = [g.real(x[0], NCHW), "", "", g.constant([n, c, h, w], "i8")]
    return moves.image(g, g.add("Resize", given, **how))


def _interpolated(g: Graph, x: list[int], o: Mapping[str, Any]) -> str:
    """Codes of codes: kernels know no scales of theirs."""
    how = {"half": bool(o.get("half_pixel_centers")), "corners": bool(o.get("align_corners"))}
    sizes = g.constant(g.known(x[1]), "i8")
    return str(g.add("ResizeBilinear", [g.raw(x[0]), sizes], domain=TFLITE, **how))


def _place(kind: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    axis = int(g.known(x[1]).reshape(()))
    if (domain := g.domain(x[0])) and g.dtype(y) == np.int32:
        return str(g.add(kind, [g.real(x[0])], domain=domain, axis=axis))
    found = g.add(kind, [g.real(x[0])], axis=axis, keepdims=0)
    return str(g.add("Cast", [found], to=helper.np_dtype_to_tensor_dtype(g.dtype(y))))


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
_CALLS |= {name: partial(_compared, name) for name in COMPARED}
_NAMED = (  # as their operators
    *(moves.pad, moves.mirror_pad, moves.space_to_batch_nd, moves.batch_to_space_nd, moves.pack),
    *(moves.slice_, moves.strided_slice, moves.reverse_v2, moves.gather, moves.gather_nd),
    *(moves.one_hot, moves.scatter_nd, moves.select),
    *(products.transpose_conv, products.fully_connected, products.batch_matmul),
)
_CALLS |= {f.__name__.upper().rstrip("_"): f for f in _NAMED}
_CALLS |= {"ELU": partial(_own, "Elu"), "HARD_SWISH": partial(_own, "HardSwish")}
_CALLS |= {
    "RESHAPE": lambda g, x, y, o: moves.shaped(g, g.real(x[0]), y),
    "CONV_2D": partial(products.conv, NCHW),
    "CONV_3D": partial(products.conv, [4, 3, 0, 1, 2]),
    "DEPTHWISE_CONV_2D": partial(products.conv, [3, 0, 1, 2]),
    "CUMSUM": lambda g, x, y, o: g.add(
        "CumSum", [g.real(x[0]), g.constant(g.known(x[1]), "i8")], **o
    ),
    "MAX_POOL_2D": partial(products.pool, "MaxPool"),
    "AVERAGE_POOL_2D": partial(products.pool, "AveragePool"),
    "RESIZE_BILINEAR": partial(_resize, "linear"),
    "ARG_MAX": partial(_place, "ArgMax"),
    "ARG_MIN": partial(_place, "ArgMin"),
    "SQUARED_DIFFERENCE": _squared,
    "MUL": partial(_of_two, "Mul"),
    "LOG_SOFTMAX": lambda g, x, y, o: g.add("LogSoftmax", [g.real(x[0])], axis=-1),
    "RESIZE_NEAREST_NEIGHBOR": partial(_resize, "nearest"),
    "CONCATENATION": lambda g, x, y, o: g.add("Concat", map(g.real, x), axis=o.get("axis", 0)),
    "SPACE_TO_DEPTH": partial(moves.blocks, "SpaceToDepth"),
    "DEPTH_TO_SPACE": partial(moves.blocks, "DepthToSpace"),
    "BROADCAST_TO": lambda g, x, y, o: g.add(
        "Expand", [g.real(x[0]), g.constant(g.shape(y), "i8")]
    ),
    "FILL": lambda g, x, y, o: g.add("Expand", [g.real(x[1]), g.constant(g.shape(y), "i8")]),
    "SHAPE": lambda g, x, y, o: g.constant(g.shape(x[0]), g.dtype(y)),
    "SQUARE": lambda g, x, y, o: g.add("Mul", [g.real(x[0])] * 2),
    "SOFTMAX": _softmax,
    "EMBEDDING_LOOKUP": lambda g, x, y, o: g.add("Gather", [g.real(x[1]), g.raw(x[0])]),
    "RELU6": lambda g, x, y, o: _active(g, g.real(x[0]), {"activation": 3}),
    "RELU_N1_TO_1": lambda g, x, y, o: _active(g, g.real(x[0]), {"activation": 2}),
    "TRANSPOSE": lambda g, x, y, o: g.real(x[0], g.known(x[1]).reshape(-1).tolist()),
    "TILE": lambda g, x, y, o: g.add("Tile", [g.real(x[0]), g.constant(g.known(x[1]), "i8")]),
    "LEAKY_RELU": lambda g, x, y, o: g.own("LeakyRelu", x, y, alpha=o.get("alpha", 0.0)),
    "GELU": lambda g, x, y, o: g.own(
        "Gelu", x, y, approximate="tanh" if o.get("approximate") else "none"
    ),
}
_CALLS |= dict.fromkeys(("SQUEEZE", "EXPAND_DIMS"), _CALLS["RESHAPE"]) | {"PADV2": moves.pad}
