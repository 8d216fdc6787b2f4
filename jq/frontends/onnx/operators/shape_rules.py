"""Shapes of operands, as the specifications of the standard and of ONNX Runtime fix them.

See `operand_shapes` for what a pattern means. "" is a scalar. What onnx's own inference of shapes
refuses (`inference`) is not repeated.
"""

import numpy as np

from jq.frontends.onnx.operand_shapes import RULES, Operands, Patterns, Shape, shapes
from jq.frontends.onnx.registry import MICROSOFT


def written(shape: Shape) -> str:
    return " ".join(map(str, shape))


def blocks(size: int, block: int) -> int:
    return -(-size // block)


@shapes("", "QuantizeLinear", "DequantizeLinear")
@shapes(MICROSOFT, "QuantizeLinear", "DequantizeLinear")
def linear(given: Operands) -> Patterns:
    """One scale, one an index of `axis`, or one a block along it; zero points as scales."""
    x, block = given.shapes["x"], given.get("block_size", 0)
    scale = "y_scale" if "y_scale" in given.shapes else "x_scale"
    zero = scale.replace("scale", "zero_point")
    axis, pattern = given.get("axis", 1), ""
    if given.shapes[scale] not in ((), (1,)) or block:
        if not -len(x) <= axis < len(x):
            raise given.refuse(f"its axis is {axis}, of {len(x)} axes")
        sizes = (
            [blocks(n, block) if a == axis % len(x) else n for a, n in enumerate(x)]
            if (block)
            else [x[axis]]
        )
        pattern = written(tuple(sizes))
    return {scale: pattern, zero: written(given.shapes[scale])}


def _window(given: Operands, channels_last: bool = False) -> tuple[str, str]:
    """Patterns of the weight, [M, C / group, ...], and of what is one a channel of the result."""
    x, group = given.shapes["x"], given.get("group", 1)
    if len(x) < 3:
        return "M C k", "M"
    channels = x[-1] if channels_last else x[1]
    kernel = given.attributes.get("kernel_shape") or [f"k{i}" for i in range(len(x) - 2)]
    if channels % group:
        raise given.refuse(f"{channels} channels in {group} groups")
    filters = given.shapes["w"][:1]
    if filters and filters[0] % group:
        raise given.refuse(f"its operand 'w' has {filters[0]} filters, in {group} groups")
    return f"M {channels // group} {' '.join(map(str, kernel))}", "M"


@shapes("", "Conv")
@shapes(MICROSOFT, "FusedConv")
def convolution(given: Operands) -> Patterns:
    weight, vector = _window(given)
    return {"x": "N C L ...", "w": weight, "b": vector}


@shapes("", "ConvInteger")
def integer_convolution(given: Operands) -> Patterns:
    weight, vector = _window(given)
    return {"x": "N C L ...", "w": weight, "x_zero_point": "", "w_zero_point": f"/ {vector}"}


@shapes("", "QLinearConv")
@shapes(MICROSOFT, "QLinearConv")
def quantized_convolution(given: Operands) -> Patterns:
    weight, vector = _window(given, bool(given.get("channels_last", 0)))
    one = dict.fromkeys(("x_scale", "x_zero_point", "y_scale", "y_zero_point"), "")
    more = {"w_scale": f"/ {vector}", "w_zero_point": f"/ {vector}", "b": vector}
    return {"x": "N C L ...", "w": weight} | one | more


def _rows(x: Shape) -> str:
    """One number, or one a row."""
    return f"/ {x[-2]} / {written(x[:-1])} 1" if len(x) > 1 else ""


def _columns(x: Shape) -> str:
    """One number, or one a column."""
    return f"/ {x[-1]} / {written(x[:-2])} 1 {x[-1]}" if len(x) > 1 else ""


def _product(given: Operands) -> Patterns:
    """`b` has as many rows as `a` has columns."""
    a, b = given.shapes["a"], given.shapes["b"]
    return {"a": "... K", "b": "... K N"} if len(b) > 1 and a else {}


@shapes("", "QLinearMatMul")
def quantized_product(given: Operands) -> Patterns:
    a, b = given.shapes["a"], given.shapes["b"]
    patterns = dict(_product(given))
    patterns |= dict.fromkeys(("a_scale", "a_zero_point"), _rows(a))
    patterns |= dict.fromkeys(("b_scale", "b_zero_point"), _columns(b))
    return patterns | dict.fromkeys(("y_scale", "y_zero_point"), "")


@shapes("", "MatMulInteger")
def integer_product(given: Operands) -> Patterns:
    a, b = given.shapes["a"], given.shapes["b"]
    return {**_product(given), "a_zero_point": _rows(a), "b_zero_point": _columns(b)}


@shapes(MICROSOFT, "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
def float_product(given: Operands) -> Patterns:
    columns = _columns(given.shapes["b"])
    found = {**_product(given), "a_scale": "", "a_zero": "", "b_scale": columns}
    return found | {"b_zero": columns, "bias": written(given.shapes["b"][-1:])}


@shapes(MICROSOFT, "QGemm", "FusedGemm")
def gemm(given: Operands) -> Patterns:
    a = "K M" if given.get("transA", 0) else "M K"
    b = "N K" if given.get("transB", 0) else "K N"
    one = dict.fromkeys(("a_scale", "a_zero", "y_scale", "y_zero"), "")
    zero = written(given.shapes.get("b_scale", ()))
    return {"a": a, "b": b, "c": "/ 1|N / 1|M 1|N", "b_scale": "/ N", "b_zero": zero} | one


@shapes(MICROSOFT, "FusedMatMul", "TransposeMatMul")
def fused_product(given: Operands) -> Patterns:
    if given.get("transBatchA", 0) or given.get("transBatchB", 0):
        rank = len(given.shapes["a"])
        return {"b": " ".join(f"n{i}" for i in range(rank))}
    a = "... K M" if given.get("transA", 0) else "... K"
    return {"a": a, "b": "... N K" if given.get("transB", 0) else "... K N"}


@shapes(MICROSOFT, "MatMulNBits")
def nbits(given: Operands) -> Patterns:
    n, k, bits = given.get("N", 0), given.get("K", 0), given.get("bits", 4)
    block = given.get("block_size", 0)
    count = blocks(k, max(block, 1))
    size, zeros = blocks(block * bits, 8), blocks(count * bits, 8)
    if given.types.get("zero_points") != np.uint8:
        zeros = count
    return {
        "a": f"... {k}",
        "b": f"{n} {count} {size}",
        "scales": f"{n} {count} / {n * count}",
        "zero_points": f"{n} {zeros} / {n * zeros}",
        "g_idx": f"{k} / {count * block}",
        "bias": f"{n}",
    }


@shapes(MICROSOFT, "GatherBlockQuantized")
def gathered_blocks(given: Operands) -> Patterns:
    data, bits, block = (
        list(given.shapes["data"]),
        given.get("bits", 4),
        given.get("block_size", 128),
    )
    packed = given.types["data"] == np.uint8 and bits < 8
    if packed:
        data[-1] *= 8 // bits
    axis = given.get("quantize_axis", 1) % len(data)
    data[axis] = blocks(data[axis], block)
    scales = tuple(data)
    zeros = (*scales[:-1], blocks(scales[-1] * bits, 8)) if packed else scales
    return {"scales": written(scales), "zero_points": written(zeros)}


PAIR = ("a_scale", "a_zero", "b_scale", "b_zero", "y_scale", "y_zero")
ONE = ("x_scale", "x_zero", "y_scale", "y_zero", "z_scale", "z_zero")
UNARY = dict.fromkeys(ONE, "")
shapes(MICROSOFT, "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")(UNARY)
shapes(MICROSOFT, "QLinearGlobalAveragePool")(UNARY | {"x": "N C L ..."})


@shapes(MICROSOFT, "QLinearAveragePool", "NhwcMaxPool")
def pooled(given: Operands) -> Patterns:
    kernel = given.attributes.get("kernel_shape", ())
    return {"x": f"N C {' '.join(f's{i}' for i in range(len(kernel)))}"} | UNARY


@shapes(MICROSOFT, "QLinearAdd", "QLinearMul", "QLinearWhere")
def pointwise(given: Operands) -> Patterns:
    """Operands are spread over each other."""
    tensors = {n: s for n, s in given.shapes.items() if "_" not in n}
    try:
        np.broadcast_shapes(*tensors.values())
    except ValueError:
        text = ", ".join(f"{name!r} {list(shape)}" for name, shape in tensors.items())
        raise given.refuse(f"the shapes of its operands do not fit: {text}") from None
    return dict.fromkeys(PAIR, "") | UNARY


@shapes(MICROSOFT, "QLinearConcat")
def joined(given: Operands) -> Patterns:
    """Every third operand is a tensor, and scale and zero point follow it."""
    tensors = [n for n in given.shapes if n.startswith("input ") and int(n[6:]) % 3 == 2]
    own = {n: "" for n in given.shapes if n.startswith("input ") and n not in tensors}
    first = given.shapes[tensors[0]] if tensors else ()
    axis = given.get("axis", 0) % max(len(first), 1)
    like = " ".join("n" + str(i) if i != axis else "*" for i in range(len(first)))
    parts = {n: like.replace("*", f"a{n[6:]}") for n in tensors}
    return {"y_scale": "", "y_zero": ""} | own | parts


shapes(MICROSOFT, "Inverse")({"x": "... n n"})
shapes(MICROSOFT, "GridSample")({"x": "N C H W", "grid": "N R S 2"})


ROWS = {"x": "... W", "bias": "W"}
shapes(MICROSOFT, "BiasGelu", "FastGelu")(ROWS)
SKIP = {"x": "... W", "gamma": "W", "beta": "W", "bias": "W"}


@shapes(MICROSOFT, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skipped(given: Operands) -> Patterns:
    x = given.shapes["x"]
    return {**SKIP, "skip": " / ".join(written(s) for s in (x, x[1:], (1, *x[1:])) if len(s) > 1)}


@shapes("", "SimplifiedLayerNormalization")
@shapes(MICROSOFT, "SimplifiedLayerNormalization")
def rms(given: Operands) -> Patterns:
    x = given.shapes["x"]
    return {"scale": written(x[given.get("axis", -1) :])}


WORDS = {
    "ids": "B S",
    "segments": "B S",
    "words": "V W",
    "positions": "P W",
    "segment_table": "T W",
    "gamma": "W",
    "beta": "W",
    "mask": "B S",
    "position_ids": "1|B S",
}
RULES[MICROSOFT, "EmbedLayerNormalization"] = WORDS
RULES[MICROSOFT, "QEmbedLayerNormalization"] = WORDS | {f"input {i}": "" for i in range(8, 18)}
