"""Affine integers against the ONNX reference evaluator.

Known differences, both by definition:

* ONNX uses the whole range, -128 to 127; the default symmetric scheme here never uses -128
  (`absmax/127.5` does);
* DynamicQuantizeLinear divides by the scale, dynamic quantization here multiplies by its
  inverse: numbers within rounding of a tie may become the neighbouring code.
"""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format
from tests.formats.encodings import values

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

TYPES = {
    "int2": TensorProto.INT2,
    "int4": TensorProto.INT4,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "uint2": TensorProto.UINT2,
    "uint4": TensorProto.UINT4,
    "uint8": TensorProto.UINT8,
}
BLOCKS = {"per-tensor": (0, 0), "per-channel": (1, 0), "per-block": (1, 8)}


def evaluate(op: str, *inputs: np.ndarray, **attributes: int) -> list[np.ndarray]:
    """Runs one op."""
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = ["y", "scale", "zero"] if op.startswith("Dynamic") else ["y"]
    node = helper.make_node(op, names, outputs, **attributes)
    args = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outputs]
    graph = helper.make_graph([node], "g", args, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


def grid_like_onnx(enc: Encoding, grid: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Our grid as ONNX wants it: a scalar, a vector along an axis, or one entry per block."""
    if enc.granularity == "per-tensor":
        return grid.reshape(()), {}
    if enc.granularity == "per-channel":
        return grid.reshape(-1), {"axis": 0}
    return grid, {"axis": 1, "block_size": enc.block[1]}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("name", TYPES)
def test_quantize_and_dequantize(name: str, scheme: str, block: tuple[int, int]) -> None:
    fmt = get_format(name)
    options = (("divisor", "absmax/127.5"),) if scheme == "symmetric" else ()
    enc = Encoding(name, (6, 24), block, scheme, options=options)
    x = values(enc.shape)
    bound = np.abs(x).max()
    lo, hi = np.full(enc.grid, -bound / 3, np.float32), np.full(enc.grid, bound / 5, np.float32)
    scale, zero = fmt.parameters(lo, hi, enc)
    codes = fmt.quantize(x, scale, zero, enc)

    shift = 1 << (fmt.bits - 1) if fmt.unsigned else 0
    kind = helper.tensor_dtype_to_np_dtype(TYPES[name])
    number = ((0 if zero is None else zero) + shift + np.zeros(enc.grid, np.int32)).astype(kind)
    onnx_scale, attributes = grid_like_onnx(enc, scale)
    onnx_zero, _ = grid_like_onnx(enc, number)
    (want,) = evaluate("QuantizeLinear", x, onnx_scale, onnx_zero, **attributes)
    np.testing.assert_array_equal(codes.astype(np.int32) + shift, want.astype(np.int32))

    (back,) = evaluate("DequantizeLinear", want, onnx_scale, onnx_zero, **attributes)
    np.testing.assert_array_equal(fmt.dequantize(NUMPY, codes, scale, zero, enc), back)


@pytest.mark.parametrize("seed", range(5))
def test_dynamic(seed: int) -> None:
    x = values((13, 17), seed)
    enc = Encoding("uint8", x.shape, (0, 0), "asymmetric")
    fmt = get_format("uint8")
    codes, scale, zero = evaluate("DynamicQuantizeLinear", x)
    ours = fmt.quantize_dynamic(NUMPY, x, enc)
    assert ours["scale"].item() == scale
    assert ours["zero_point"].item() + 128 == zero
    static_scale, static_zero = fmt.parameters(x.min().reshape(1, 1), x.max().reshape(1, 1), enc)
    np.testing.assert_array_equal(static_scale, ours["scale"])
    np.testing.assert_array_equal(static_zero, ours["zero_point"])
    np.testing.assert_array_equal(
        fmt.quantize(x, static_scale, static_zero, enc).astype(int) + 128, codes
    )
    assert np.abs(ours["codes"].astype(int) + 128 - codes).max() <= 1
