"""Shapes of operands that follow from more than the pattern in an operator's `takes`.

See `operand_shapes` for what a pattern means. "" is a scalar. What onnx's own inference of shapes
refuses (`inference`) is not repeated."""

from collections.abc import Iterable

import numpy as np

from jq.frontends.onnx.operand_shapes import Found, Operands, shapes
from jq.frontends.onnx.registry import MICROSOFT


def written(shape: Iterable[int | str]) -> str:
    return " ".join(map(str, shape))


def blocks(size: int, block: int) -> int:
    return -(-size // block)


@shapes("", "QuantizeLinear", "DequantizeLinear")
@shapes(MICROSOFT, "QuantizeLinear", "DequantizeLinear")
def linear(given: Operands) -> Found:
    """One scale, one an index of `axis`, or one a block along it; zero points as scales."""
    x, block, axis = given.shapes["x"], given.get("block_size"), given.get("axis", 1)
    scale = "y_scale" if "y_scale" in given.shapes else "x_scale"
    pattern = ""
    if given.shapes[scale] not in ((), (1,)) or block:
        if not -len(x) <= axis < len(x):
            raise given.refuse(f"its axis is {axis}, of {len(x)} axes")
        sizes = [blocks(n, block) if a == axis % len(x) else n for a, n in enumerate(x) if block]
        pattern = written(tuple(sizes or [x[axis]]))
    return {scale: pattern, scale.replace("scale", "zero_point"): written(given.shapes[scale])}


LISTS = ("input", "shape", "repeats", "starts", "ends", "axes", "steps")
for name in ("ConstantOfShape", "Expand", "Reshape", "Slice", "Tile"):
    shapes("", name)(lambda _: dict.fromkeys(LISTS, "n"))
shapes("", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")(lambda _: {"x": "N C L ..."})
shapes("", "MaxUnpool")(lambda given: {"indices": written(given.shapes["x"])})


@shapes("", "Scatter", "ScatterElements", "GatherElements")
def elements(given: Operands) -> Found:
    """An index for every element that is read or written, along the axes of the data."""
    axes = " ".join(f"n{i}" for i in range(len(given.shapes["data"])))
    return {"indices": axes, "updates": written(given.shapes["indices"])}


@shapes("", "ScatterND")
def parts(given: Operands) -> Found:
    data, indices = given.shapes["data"], given.shapes["indices"]
    return {"updates": written(indices[:-1] + data[(indices or (0,))[-1] :])}


@shapes("", "Conv", "ConvInteger", "ConvTranspose", "QLinearConv")
@shapes(MICROSOFT, "FusedConv", "QLinearConv")
def convolution(given: Operands) -> Found:
    """The weight is [M, C / group, ...], of a transposed convolution [C, M / group, ...]."""
    x, group = given.shapes["x"], given.get("group", 1)
    if len(x) < 3:
        return {"w": "M C k"}
    channels = x[-1] if given.get("channels_last") else x[1]
    kernel = written(given.get("kernel_shape") or [f"k{i}" for i in range(len(x) - 2)])
    if channels % group:
        raise given.refuse(f"{channels} channels in {group} groups")
    filters = given.shapes["w"][:1]
    if filters and filters[0] % group:
        raise given.refuse(f"its operand 'w' has {filters[0]} filters, in {group} groups")
    turned = given.call.node.op == "ConvTranspose"
    return {"w": f"{channels} m {kernel}" if turned else f"M {channels // group} {kernel}"}


@shapes("", "QLinearMatMul", "MatMulInteger")
@shapes(MICROSOFT, "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
def product(given: Operands) -> Found:
    """Scales and zero points are one number, one a row of `a`, and one a column of `b`."""
    a, b = given.shapes["a"], given.shapes["b"]
    rows = f"/ {a[-2]} / {written(a[:-1])} 1" if len(a) > 1 else ""
    columns = f"/ {b[-1]} / {written(b[:-2])} 1 {b[-1]}" if len(b) > 1 else ""
    found = {"b_scale": columns, "b_zero_point": columns}
    if not given.call.node.domain:
        found |= {"a_scale": rows, "a_zero_point": rows}
    return found


@shapes("", "Gemm")
@shapes(MICROSOFT, "QGemm", "FusedGemm")
def gemm(given: Operands) -> Found:
    a, b = (given.get(name) for name in ("transA", "transB"))
    zero = written(given.shapes.get("b_scale", ()))
    return {"a": "K M" if a else "M K", "b": "N K" if b else "K N", "b_zero_point": zero}


@shapes(MICROSOFT, "FusedMatMul", "TransposeMatMul")
def fused_product(given: Operands) -> Found:
    if given.get("transBatchA") or given.get("transBatchB"):
        return {"b": " ".join(f"n{i}" for i in range(len(given.shapes["a"])))}
    a, b = (given.get(name) for name in ("transA", "transB"))
    return {"a": "... K M" if a else "... K", "b": "... N K" if b else "... K N"}


@shapes(MICROSOFT, "MatMulNBits")
def nbits(given: Operands) -> Found:
    block, bits = max(given.get("block_size"), 1), given.get("bits")
    count = blocks(given.get("K"), block)
    packed = given.types.get("zero_points") == np.uint8
    zeros = blocks(count * bits, 8) if packed else count
    return {"blocks": count, "bytes": blocks(block * bits, 8), "zeros": zeros}


@shapes(MICROSOFT, "GatherBlockQuantized")
def gathered_blocks(given: Operands) -> Found:
    data, bits = list(given.shapes["data"]), given.get("bits")
    packed = given.types["data"] == np.uint8 and bits < 8
    if packed:
        data[-1] *= 8 // bits
    axis = given.get("quantize_axis") % len(data)
    data[axis] = blocks(data[axis], given.get("block_size"))
    scales = tuple(data)
    zeros = (*scales[:-1], blocks(scales[-1] * bits, 8)) if packed else scales
    return {"scales": written(scales), "zero_points": written(zeros)}


@shapes(MICROSOFT, "QLinearAveragePool", "NhwcMaxPool")
def pooled(given: Operands) -> Found:
    return {
        "x": " ".join(["N", "C", *(f"s{i}" for i in range(len(given.get("kernel_shape", ()))))])
    }


@shapes(MICROSOFT, "QLinearAdd", "QLinearMul", "QLinearWhere")
def pointwise(given: Operands) -> Found:
    """Operands are spread over each other."""
    tensors = {n: s for n, s in given.shapes.items() if "_" not in n}
    try:
        np.broadcast_shapes(*tensors.values())
    except ValueError:
        text = ", ".join(f"{name!r} {list(shape)}" for name, shape in tensors.items())
        raise given.refuse(f"the shapes of its operands do not fit: {text}") from None
    return {}


@shapes(MICROSOFT, "QLinearConcat")
def joined(given: Operands) -> Found:
    """Every third operand is a tensor, and scale and zero point follow it."""
    tensors = [n for n in given.shapes if n.startswith("input ") and int(n[6:]) % 3 == 2]
    one = {n: "" for n in given.shapes if n not in tensors}
    first = given.shapes[tensors[0]] if tensors else ()
    axis = given.get("axis") % max(len(first), 1)
    sizes = [f"n{i}" for i in range(len(first))]
    return one | {n: " ".join([*sizes[:axis], f"a{n[6:]}", *sizes[axis + 1 :]]) for n in tensors}


@shapes(MICROSOFT, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skipped(given: Operands) -> Found:
    x = given.shapes["x"]
    return {"skip": " / ".join(written(s) for s in (x, x[1:], (1, *x[1:])) if len(s) > 1)}


@shapes("", "LayerNormalization", "RMSNormalization")
def rows(given: Operands) -> Found:
    """Factors and addends are spread over `x`."""
    sizes = [f"1|{n}" for n in given.shapes["x"]]
    return dict.fromkeys(
        ("scale", "b"), " / ".join(written(sizes[i:]) for i in range(len(sizes) + 1))
    )


@shapes("", "SimplifiedLayerNormalization")
@shapes(MICROSOFT, "SimplifiedLayerNormalization")
def rms(given: Operands) -> Found:
    return {"scale": written(given.shapes["x"][given.get("axis", -1) :])}


shapes(MICROSOFT, "Inverse")(lambda _: {"x": "... n n"})
shapes(MICROSOFT, "BiasGelu", "FastGelu")(lambda _: {"x": "... W", "bias": "W"})


@shapes(MICROSOFT, "Attention", "QAttention")
def attention(given: Operands) -> Found:
    """Weights of queries, keys and values are side by side, of one size if no attribute says so."""
    x, past, weights = (given.shapes.get(n, ()) for n in ("x", "past", "weights"))
    if len(x) != 3:
        return {"x": "B S I"}
    heads, sizes = given.get("num_heads", 1), given.get("qkv_hidden_sizes")
    width = weights[-1] if weights else 0
    if not sizes and width % (3 * heads):
        reason = f"whose columns are not three times those of {heads} heads"
        raise given.refuse(f"its operand 'weights' has shape {list(weights)}, {reason}")
    size = (sizes[1] if sizes else width // 3) // heads
    keys = x[1] + (past[3] if len(past) == 5 else 0)
    return {"total": sum(sizes) if sizes else width, "size": size, "T": keys}


@shapes(MICROSOFT, "MultiHeadAttention")
def multi_head(given: Operands) -> Found:
    """Keys and values of four axes lie ready as heads."""
    query, key, value, past = (
        given.shapes.get(n, ()) for n in ("query", "key", "value", "past_key")
    )
    ready, packed = len(key) == 4, len(query) == 5
    rows = key[2] if ready else key[1] if len(key) > 1 else query[1] if packed else 0
    found: dict[str, str | int] = {"T": rows + (past[2] if len(past) == 4 else 0)}
    if ready:
        found |= {"key": "B num_heads L H", "value": "B num_heads L V"}
    elif len(query) == len(value) == 3:
        found["bias"] = str(2 * query[2] + value[2])
    return found


@shapes(MICROSOFT, "GroupQueryAttention")
def grouped(given: Operands) -> Found:
    query, heads, own = given.shapes["query"], given.get("num_heads"), given.get("kv_num_heads")
    if len(query) != 3 or min(heads, own) < 1:
        return {"query": "B S W"}
    count = heads if "key" in given.shapes else heads + 2 * own
    return {"size": query[2] // count, "count": count}


@shapes(MICROSOFT, "RotaryEmbedding")
def rotary(given: Operands) -> Found:
    x, heads = given.shapes["x"], given.get("num_heads")
    batch, length = (x[0], x[2 if len(x) == 4 else 1]) if len(x) > 2 else (1, 1)
    size = x[3] if len(x) == 4 else x[2] // heads if len(x) == 3 and heads else 0
    found: dict[str, str | int] = {"position_ids": f"1 / {batch} {length}"}
    if width := given.get("rotary_embedding_dim") or size:
        found["half"] = width // 2
    return found


@shapes("", "LSTM", "GRU", "RNN")
@shapes(MICROSOFT, "DynamicQuantizeLSTM")
def recurrent(given: Operands) -> Found:
    count = 2 if given.get("direction") == "bidirectional" else 1
    gates = {"GRU": 3, "RNN": 1}.get(given.call.node.op, 4)
    found: dict[str, str | int] = {"D": count, "rows": gates * given.get("hidden_size")}
    if given.get("layout"):
        found |= {"x": "B S I"} | dict.fromkeys(("initial_h", "initial_c"), "B D hidden_size")
    return found
