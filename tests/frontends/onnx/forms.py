"""The forms in which ONNX files carry quantization, each as a small graph with random data.

`FORMS` is name -> function that gives the nodes, the inputs, the initializers and the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.against_ort import saturates

F32, U8, I8 = np.float32, np.uint8, np.int8


@dataclass
class Form:
    """A graph under construction: `call` adds a node and names its result."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def real(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype(F32)

    def steps(self, *shape: int) -> np.ndarray:
        """Scales."""
        return self.rng.uniform(0.01, 0.03, shape).astype(F32)

    def powers(self, *shape: int) -> np.ndarray:
        """Scales that are powers of two: sums of floats are then exact in any order."""
        return np.ldexp(F32(1), -self.rng.integers(5, 8, shape)).astype(F32)

    def codes(self, dtype: Any, *shape: int) -> np.ndarray:
        info = ml_dtypes.iinfo(dtype)
        drawn = self.rng.integers(int(info.min), int(info.max) + 1, shape)
        return (drawn // 2 if dtype == I8 and saturates() else drawn).astype(dtype)

    def given(self, x: np.ndarray) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = x
        return name

    def const(self, x: Any) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(x)
        return name

    def call(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        names = [f"t{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def microsoft(self, op: str, *inputs: str, **attributes: Any) -> str:
        return str(self.call(op, *inputs, domain="com.microsoft", **attributes))

    def save(self, path: Path) -> Path:
        ends = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in self.inputs.items()
        ]
        made = [helper.make_value_info(name, onnx.TypeProto()) for name in self.outputs]
        tensors = [numpy_helper.from_array(v, k) for k, v in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "form", ends, made, tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        return path


FORMS: dict[str, Callable[[Form], str | list[str]]] = {}


def form(name: str) -> Callable[[Callable[[Form], Any]], Callable[[Form], Any]]:
    def register(function: Callable[[Form], Any]) -> Callable[[Form], Any]:
        FORMS[name] = function
        return function

    return register


def build_all() -> tuple[Form, dict[str, list[str]]]:
    """All forms in one graph, which is loaded and compiled once; the outputs of each."""
    made, outputs = Form(np.random.default_rng(0)), {}
    for name, function in FORMS.items():
        found = function(made)
        outputs[name] = found if isinstance(found, list) else [found]
    made.outputs = [y for group in outputs.values() for y in group]
    return made, outputs


def image(f: Form, dtype: Any = F32) -> str:
    shape = (2, 6, 9, 8)
    return f.given(f.real(*shape) if dtype is F32 else f.codes(dtype, *shape))


def matrix(f: Form, dtype: Any = F32) -> str:
    shape = (3, 16, 64)
    return f.given(f.real(*shape) if dtype is F32 else f.codes(dtype, *shape))


def qdq(f: Form, x: str, dtype: Any = U8, zero: int | None = 120, step: float = 2**-5) -> str:
    given = [f.const(F32(step)), *([] if zero is None else [f.const(dtype(zero))])]
    return str(f.call("DequantizeLinear", f.call("QuantizeLinear", x, *given), *given))


def quantized(f: Form, y: str, dtype: Any = U8, zero: int = 130, step: float = 2**-3) -> str:
    return str(f.call("QuantizeLinear", y, f.const(F32(step)), f.const(dtype(zero))))


def per_channel(f: Form, dtype: Any, *shape: int, axis: int = 0) -> str:
    scale = f.powers(shape[axis])
    zeros = np.zeros(shape[axis], dtype)
    weight = f.const(f.codes(dtype, *shape))
    return str(f.call("DequantizeLinear", weight, f.const(scale), f.const(zeros), axis=axis))


@form("Q/DQ convolution")
def qdq_conv(f: Form) -> str:
    x = qdq(f, image(f))
    scale = f.powers(10)
    weight = f.const(f.codes(I8, 10, 6, 3, 3))
    w = f.call("DequantizeLinear", weight, f.const(scale), f.const(np.zeros(10, I8)), axis=0)
    bias = f.const(f.rng.integers(-500, 500, 10).astype(np.int32))
    b = f.call("DequantizeLinear", bias, f.const(scale * F32(2**-5)), axis=0)
    return quantized(f, f.call("Conv", x, w, b, pads=[1, 1, 1, 1]))


@form("Q/DQ product")
def qdq_product(f: Form) -> str:
    w = per_channel(f, I8, 64, 24, axis=1)
    return quantized(f, f.call("MatMul", qdq(f, matrix(f)), w))


@form("Q/DQ product of int16")
def qdq_int16(f: Form) -> str:
    x = qdq(f, matrix(f), np.int16, 0, 2**-10)
    return quantized(f, f.call("MatMul", x, per_channel(f, I8, 64, 24, axis=1)), np.int16, 0, 2**-7)


@form("Q/DQ product of uint16")
def qdq_uint16(f: Form) -> str:
    x = qdq(f, matrix(f), np.uint16, 30000, 2**-10)
    w = per_channel(f, I8, 64, 24, axis=1)
    return quantized(f, f.call("MatMul", x, w), np.uint16, 33000, 2**-7)


@form("DequantizeLinear without zero point")
def no_zero(f: Form) -> str:
    weight = f.const(f.codes(I8, 64, 24))
    w = f.call("DequantizeLinear", weight, f.const(F32(0.02)))
    return str(f.call("MatMul", qdq(f, matrix(f), I8, None), w))


@form("DequantizeLinear of uint8 without zero point")
def unsigned_no_zero(f: Form) -> str:
    w = f.call("DequantizeLinear", f.const(f.codes(U8, 64, 24)), f.const(F32(0.02)))
    return str(f.call("MatMul", qdq(f, matrix(f), U8, None), w))


@form("DequantizeLinear of int4")
def int4(f: Form) -> str:
    weight = f.const(f.codes(ml_dtypes.int4, 64, 24))
    w = f.call("DequantizeLinear", weight, f.const(f.steps(24)), axis=1)
    return str(f.call("MatMul", matrix(f), w))


@form("DequantizeLinear of uint4")
def uint4(f: Form) -> str:
    weight, zero = f.codes(ml_dtypes.uint4, 64, 24), f.codes(ml_dtypes.uint4, 24)
    parts = f.const(weight), f.const(f.steps(24)), f.const(zero)
    return str(f.call("MatMul", matrix(f), f.call("DequantizeLinear", *parts, axis=1)))


@form("DequantizeLinear in blocks")
def blocks(f: Form) -> str:
    weight, zero = f.codes(ml_dtypes.uint4, 64, 24), f.codes(ml_dtypes.uint4, 4, 24)
    parts = f.const(weight), f.const(f.steps(4, 24)), f.const(zero)
    w = f.call("DequantizeLinear", *parts, axis=0, block_size=16)
    return str(f.call("MatMul", matrix(f), w))


@form("DequantizeLinear in blocks of int8")
def blocks8(f: Form) -> str:
    parts = f.const(f.codes(I8, 24, 64)), f.const(f.steps(24, 2))
    w = f.call("DequantizeLinear", *parts, axis=1, block_size=32)
    return str(f.call("MatMul", matrix(f), f.call("Transpose", w, perm=[1, 0])))


@form("Q/DQ of float8")
def float8(f: Form) -> str:
    kind = ml_dtypes.float8_e4m3fn
    w = f.real(64, 24).astype(kind)
    x = qdq(f, matrix(f), kind, 0, 0.01)
    return str(f.call("MatMul", x, f.call("DequantizeLinear", f.const(w), f.const(F32(0.1)))))


def conv_parts(f: Form, w: Any, zero: Any, scale: Any) -> list[str]:
    x = [image(f, U8), f.const(F32(0.02)), f.const(U8(117))]
    return [*x, f.const(w), f.const(scale), f.const(zero)]


@form("QLinearConv")
def qlinear_conv(f: Form) -> str:
    parts = conv_parts(f, f.codes(I8, 10, 6, 3, 3), np.zeros(10, I8), f.steps(10))
    bias = f.const(f.rng.integers(-9000, 9000, 10).astype(np.int32))
    y = [f.const(F32(0.3)), f.const(U8(130))]
    return str(f.call("QLinearConv", *parts, *y, bias, strides=[2, 2], pads=[1, 0, 1, 2]))


@form("QLinearConv of unsigned weights")
def qlinear_conv_unsigned(f: Form) -> str:
    parts = conv_parts(f, f.codes(U8, 10, 6, 3, 3), U8(133), F32(0.02))
    return str(f.call("QLinearConv", *parts, f.const(F32(0.3)), f.const(U8(130)), pads=[1] * 4))


@form("QLinearConv of unsigned weights, one pixel")
def qlinear_conv_pixel(f: Form) -> str:
    parts = conv_parts(f, f.codes(U8, 10, 6, 1, 1), U8(133), F32(0.02))
    return str(f.call("QLinearConv", *parts, f.const(F32(0.3)), f.const(U8(130))))


@form("QLinearConv of unsigned weights by channel")
def qlinear_conv_channels(f: Form) -> str:
    w, zeros = f.codes(U8, 6, 1, 3, 3), f.codes(U8, 6)
    parts = conv_parts(f, w, zeros, f.steps(6))
    return str(f.call("QLinearConv", *parts, f.const(F32(0.1)), f.const(U8(130)), group=6))


@form("QLinearConv of unsigned weights in groups")
def qlinear_conv_unsigned_groups(f: Form) -> str:
    parts = conv_parts(f, f.codes(U8, 10, 3, 3, 3), U8(133), F32(0.02))
    return str(f.call("QLinearConv", *parts, f.const(F32(0.3)), f.const(U8(130)), group=2))


@form("QLinearConv in groups")
def qlinear_conv_groups(f: Form) -> str:
    parts = conv_parts(f, f.codes(I8, 6, 1, 3, 3), np.zeros(6, I8), f.steps(6))
    return str(f.call("QLinearConv", *parts, f.const(F32(0.1)), f.const(U8(130)), group=6))


@form("QLinearMatMul")
def qlinear_matmul(f: Form) -> str:
    a = [matrix(f, U8), f.const(F32(0.02)), f.const(U8(120))]
    b = [f.const(f.codes(I8, 64, 24)), f.const(F32(0.02)), f.const(I8(0))]
    return str(f.call("QLinearMatMul", *a, *b, f.const(F32(0.3)), f.const(U8(120))))


@form("QLinearMatMul of two inputs")
def qlinear_matmul_two(f: Form) -> str:
    a = [matrix(f, U8), f.const(F32(0.02)), f.const(U8(120))]
    b = [f.given(f.codes(U8, 3, 64, 24)), f.const(F32(0.02)), f.const(U8(140))]
    return str(f.call("QLinearMatMul", *a, *b, f.const(F32(0.3)), f.const(U8(120))))


@form("MatMulInteger")
def matmul_integer(f: Form) -> str:
    b = f.const(f.codes(I8, 64, 24))
    return str(f.call("MatMulInteger", matrix(f, U8), b, f.const(U8(120)), f.const(I8(0))))


@form("ConvInteger")
def conv_integer(f: Form) -> str:
    w = f.const(f.codes(U8, 10, 6, 3, 3))
    zeros = f.const(U8(120)), f.const(U8(99))
    return str(f.call("ConvInteger", image(f, U8), w, *zeros, pads=[1] * 4))


@form("DynamicQuantizeLinear")
def dynamic(f: Form) -> list[str]:
    return list(f.call("DynamicQuantizeLinear", matrix(f), count=3))


@form("dynamic product")
def dynamic_product(f: Form) -> str:
    """As `quantize_dynamic` writes it."""
    codes, scale, zero = f.call("DynamicQuantizeLinear", matrix(f), count=3)
    b = f.const(f.codes(I8, 64, 24))
    sums = f.call("MatMulInteger", codes, b, zero, f.const(np.zeros(24, I8)))
    both = f.call("Mul", scale, f.const(f.steps(24)))
    return str(f.call("Mul", f.call("Cast", sums, to=TensorProto.FLOAT), both))


def in_blocks(f: Form, bits: int, zeros: bool) -> str:
    parts = [f.const(f.codes(U8, 24, 2, 32 * bits // 8)), f.const(f.steps(24, 2))]
    if zeros:
        parts.append(f.const(f.codes(U8, 24, 2 * bits // 8)))
    return f.microsoft("MatMulNBits", matrix(f), *parts, K=64, N=24, bits=bits, block_size=32)


@form("MatMulNBits of 4 bits")
def nbits4(f: Form) -> str:
    return in_blocks(f, 4, True)


@form("MatMulNBits of 4 bits without zero points")
def nbits4_symmetric(f: Form) -> str:
    return in_blocks(f, 4, False)


@form("MatMulNBits of 8 bits")
def nbits8(f: Form) -> str:
    return in_blocks(f, 8, True)


@form("GatherBlockQuantized")
def gather_blocks(f: Form) -> str:
    ids = f.given(f.rng.integers(0, 40, (2, 7)))
    table = f.const(f.codes(ml_dtypes.uint4, 40, 64))
    parts = table, ids, f.const(f.steps(40, 2)), f.const(f.codes(ml_dtypes.uint4, 40, 2))
    return f.microsoft("GatherBlockQuantized", *parts, block_size=32, quantize_axis=1)


@form("GatherBlockQuantized of bytes")
def gather_bytes(f: Form) -> str:
    ids = f.given(f.rng.integers(0, 40, (2, 7)))
    table = f.const(f.codes(U8, 40, 32))
    parts = table, ids, f.const(f.steps(40, 2)), f.const(f.codes(U8, 40, 1))
    return f.microsoft("GatherBlockQuantized", *parts, block_size=32, quantize_axis=1, bits=4)


def binary(f: Form, op: str) -> str:
    a = [matrix(f, U8), f.const(F32(0.021)), f.const(U8(120))]
    b = [f.given(f.codes(U8, 16, 64)), f.const(F32(0.033)), f.const(U8(140))]
    return f.microsoft(op, *a, *b, f.const(F32(0.047)), f.const(U8(125)))


@form("QLinearAdd")
def qlinear_add(f: Form) -> str:
    return binary(f, "QLinearAdd")


@form("QLinearMul")
def qlinear_mul(f: Form) -> str:
    return binary(f, "QLinearMul")


@form("QLinearConcat")
def qlinear_concat(f: Form) -> str:
    a = [matrix(f, U8), f.const(F32(0.021)), f.const(U8(120))]
    b = [f.given(f.codes(U8, 3, 16, 5)), f.const(F32(0.033)), f.const(U8(140))]
    return f.microsoft("QLinearConcat", f.const(F32(0.04)), f.const(U8(125)), *a, *b, axis=2)


@form("QLinearWhere")
def qlinear_where(f: Form) -> str:
    condition = f.given(f.rng.integers(0, 2, (16, 64)).astype(bool))
    a = [matrix(f, U8), f.const(F32(0.021)), f.const(U8(120))]
    b = [f.given(f.codes(U8, 16, 64)), f.const(F32(0.033)), f.const(U8(140))]
    return f.microsoft("QLinearWhere", condition, *a, *b, f.const(F32(0.04)), f.const(U8(125)))


def unary(f: Form, op: str, x: str, step: float, zero: int, **attributes: Any) -> str:
    parts = x, f.const(F32(0.031)), f.const(U8(118)), f.const(F32(step)), f.const(U8(zero))
    return f.microsoft(op, *parts, **attributes)


@form("QLinearSigmoid")
def qlinear_sigmoid(f: Form) -> str:
    return unary(f, "QLinearSigmoid", matrix(f, U8), 1 / 256, 0)


@form("QLinearLeakyRelu")
def qlinear_leaky(f: Form) -> str:
    return unary(f, "QLinearLeakyRelu", matrix(f, U8), 0.02, 60, alpha=0.3)


@form("QLinearSoftmax")
def qlinear_softmax(f: Form) -> str:
    return unary(f, "QLinearSoftmax", matrix(f, U8), 1 / 256, 0, axis=-1, opset=13)


@form("QLinearSoftmax of any scale")
def qlinear_softmax_scale(f: Form) -> str:
    return unary(f, "QLinearSoftmax", matrix(f, U8), 0.0026, 0, axis=-1, opset=13)


@form("QLinearGlobalAveragePool")
def qlinear_global(f: Form) -> str:
    return unary(f, "QLinearGlobalAveragePool", image(f, U8), 0.01, 110)


@form("QLinearAveragePool")
def qlinear_average(f: Form) -> str:
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    return unary(f, "QLinearAveragePool", image(f, U8), 0.02, 110, **window)


@form("QLinearAveragePool of halves")
def qlinear_average_halves(f: Form) -> str:
    """An odd zero point, which is added before the halves between two steps are rounded."""
    window = {"kernel_shape": [2, 2], "pads": [1, 0, 1, 0], "count_include_pad": 1}
    return unary(f, "QLinearAveragePool", image(f, U8), 0.031, 117, **window)


def gemm(f: Form, *end: str) -> str:
    a = [f.given(f.codes(U8, 33, 64)), f.const(F32(0.02)), f.const(U8(120))]
    scale = f.steps(24)
    b = [f.const(f.codes(I8, 24, 64)), f.const(scale), f.const(np.zeros(24, I8))]
    bias = f.const(f.rng.integers(-5000, 5000, 24).astype(np.int32))
    return f.microsoft("QGemm", *a, *b, bias, *end, transB=1, alpha=1.0)


@form("QGemm")
def qgemm(f: Form) -> str:
    return gemm(f, f.const(F32(0.2)), f.const(U8(120)))


@form("QGemm to float")
def qgemm_float(f: Form) -> str:
    return gemm(f)


@form("MatMulIntegerToFloat")
def integer_to_float(f: Form) -> str:
    b = f.const(f.codes(I8, 64, 24))
    zeros = f.const(U8(120)), f.const(np.zeros(24, I8))
    parts = matrix(f, U8), b, f.const(F32(0.02)), f.const(f.steps(24)), *zeros
    return f.microsoft("MatMulIntegerToFloat", *parts, f.const(f.real(24)))


@form("DynamicQuantizeMatMul")
def dynamic_matmul(f: Form) -> str:
    b, scale = f.const(f.codes(I8, 64, 24)), f.const(f.steps(24))
    return f.microsoft("DynamicQuantizeMatMul", matrix(f), b, scale, f.const(np.zeros(24, I8)))


@form("MatMulNBits with g_idx")
def nbits_groups(f: Form) -> str:
    # Zero points are left out: with g_idx ONNX Runtime takes them from the wrong places.
    parts = [f.const(f.codes(U8, 24, 2, 16)), f.const(f.steps(24, 2)), ""]
    groups = f.const(f.rng.permutation(64).astype(np.int32) // 32)
    sizes = {"K": 64, "N": 24, "bits": 4, "block_size": 32}
    return f.microsoft("MatMulNBits", matrix(f), *parts, groups, **sizes)


@form("MatMulNBits with float zero points")
def nbits_float_zeros(f: Form) -> str:
    parts = [f.const(f.codes(U8, 24, 2, 16)), f.const(f.steps(24, 2))]
    zeros = f.const(f.rng.uniform(6, 9, (24, 2)).astype(F32))
    sizes = {"K": 64, "N": 24, "bits": 4, "block_size": 32}
    return f.microsoft("MatMulNBits", matrix(f), *parts, zeros, **sizes)


@form("QLinearConv of channels last")
def qlinear_conv_last(f: Form) -> str:
    x = [f.given(f.codes(U8, 2, 9, 8, 6)), f.const(F32(0.02)), f.const(U8(117))]
    w = [f.const(f.codes(I8, 10, 6, 3, 3)), f.const(f.steps(10)), f.const(np.zeros(10, I8))]
    y = [f.const(F32(0.3)), f.const(U8(130))]
    return f.microsoft("QLinearConv", *x, *w, *y, channels_last=1, pads=[1] * 4)


@form("NhwcMaxPool")
def pool_last(f: Form) -> str:
    x = f.given(f.codes(U8, 2, 9, 8, 6))
    return f.microsoft("NhwcMaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def dynamic_lstm(
    f: Form, direction: str, dtype: Any, per_channel: bool, lengths: Sequence[int] = ()
) -> list[str]:
    ways, inputs, hidden = 1 + (direction == "bidirectional"), 12, 8
    shapes = [(ways, inputs, 4 * hidden), (ways, hidden, 4 * hidden)]
    w, r = (f.const(f.codes(dtype, *s)) for s in shapes)
    grid = (ways, 4 * hidden) if per_channel else (ways,)
    zeros = np.zeros(grid, dtype) if per_channel else np.full(grid, 3, dtype)
    pair = [[f.const(f.steps(*grid) / 8), f.const(zeros)] for _ in range(2)]
    ends = f.given(np.asarray(lengths, np.int32)) if lengths else ""
    batch = len(lengths) or 3
    first = [f.given(f.real(ways, batch, hidden)) for _ in range(2)] if lengths else ["", ""]
    optional = [f.const(f.real(ways, 8 * hidden)), ends, *first, ""]
    given = [f.given(f.real(5, batch, inputs)), w, r, *optional, *pair[0], *pair[1]]
    attributes = {"direction": direction, "hidden_size": hidden, "domain": "com.microsoft"}
    return list(f.call("DynamicQuantizeLSTM", *given, count=3, **attributes))


@form("DynamicQuantizeLSTM")
def lstm(f: Form) -> list[str]:
    return dynamic_lstm(f, "forward", I8, True)


@form("DynamicQuantizeLSTM of unsigned weights")
def lstm_unsigned(f: Form) -> list[str]:
    return dynamic_lstm(f, "bidirectional", U8, False)


@form("DynamicQuantizeLSTM of sequences of several lengths")
def lstm_lengths(f: Form) -> list[str]:
    return dynamic_lstm(f, "bidirectional", I8, False, lengths=[2, 0, 4, 1])


@form("QAttention")
def qattention(f: Form) -> str:
    x = f.given(f.codes(U8, 2, 5, 16))
    w, bias = f.const(f.codes(I8, 16, 48)), f.const(f.real(48))
    scales = f.const(F32(0.01)), f.const(f.steps(48))
    mask = f.const(np.asarray([5, 3], np.int32))
    zeros = f.const(U8(120)), f.const(np.zeros(48, I8))
    return f.microsoft("QAttention", x, w, bias, *scales, mask, *zeros, num_heads=4)


@form("QEmbedLayerNormalization")
def qembed(f: Form) -> list[str]:
    ids = [f.given(f.rng.integers(0, n, (2, 5)).astype(np.int32)) for n in (20, 2)]
    tables = [f.const(f.codes(U8, *s)) for s in ((20, 16), (9, 16), (2, 16), (16,), (16,))]
    mask = f.const(np.asarray([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32))
    scales = [f.const(F32(s)) for s in (0.01, 0.02, 0.03, 0.01, 0.02)]
    zeros = [f.const(U8(z)) for z in (120, 130, 128, 5, 100)]
    parts = *ids, *tables, mask, *scales, *zeros
    made = f.call("QEmbedLayerNormalization", *parts, count=2, domain="com.microsoft")
    return list(made)
