"""The ONNX package's own node cases of quantization, through programs of ours on XLA CPU.

Unsigned numbers are shifted to signed ones on the way in and out: no unsigned type enters a
program. What differs, or has no counterpart here, is in `DIFFERENT` with its reason; everything
else is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from tests.support.programs import Case, build, evaluated, run_xla

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402

OPS = (
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"),
    *("ConvInteger", "QLinearMatMul", "QLinearConv"),
)
NO_UINT16 = "there is no format of unsigned 16-bit integers"
NO_FLOAT8 = "float8 and float4 are formats of weights: no codes of a computed tensor"
DIFFERENT = {"uint16": NO_UINT16, "e4m3fn": NO_FLOAT8, "e5m2": NO_FLOAT8, "float4e2m1": NO_FLOAT8}
# ONNX divides by the scale; dynamic quantization here multiplies by its inverse, computed once.
# One number of this case lies so near a tie that it becomes the neighbouring code.
NEIGHBOURS = {"test_dynamicquantizelinear": 1}


def node_cases() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {case.name: case for case in collect_testcases("")}
    for name, case in found.items():
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in OPS:
            reason = next((r for key, r in DIFFERENT.items() if key in name), None)
            marks = [pytest.mark.skip(reason=reason)] if reason else []
            yield pytest.param(case, id=name.removeprefix("test_"), marks=marks)


CASES = list(node_cases())


def array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if hasattr(value, "data_type") else np.asarray(value)


def signed(x: np.ndarray, bits: int) -> np.ndarray:
    """Codes of ours for ONNX's numbers."""
    shift = 1 << (bits - 1) if x.dtype.name.startswith("u") else 0
    return x.astype(np.int32) - shift


def format_of(x: np.ndarray) -> str:
    return x.dtype.name


def encoding(case: Any, name: str, shape: tuple[int, ...], scale: np.ndarray) -> Encoding:
    """ONNX's axis and block size as block sizes; its integers use their whole range."""
    given = {a.name: a.i for a in case.model.graph.node[0].attribute}
    axis, size = given.get("axis", 1) % len(shape), given.get("block_size", 0)
    block = [0] * len(shape)
    if size:
        block = [size if a == axis else 1 for a in range(len(shape))]
    elif scale.size > 1:
        block[axis] = 1
    options = (("packing", "none"),) if get_format(name).bits < 8 else ()
    return Encoding(name, shape, tuple(block), "asymmetric", options=options)


@pytest.mark.parametrize("case", CASES)
def test_node_case(case):
    inputs, outputs = ([array(v) for v in values] for values in case.data_sets[0])
    run = globals()[f"run_{case.model.graph.node[0].op_type.lower()}"]
    for got, want in zip(run(case, inputs, outputs), outputs, strict=True):
        if want.dtype.kind == "f":
            assert np.array_equal(got.astype(want.dtype), want)
        else:
            bits = get_format(format_of(want)).bits if want.dtype != np.int32 else 32
            off = got.astype(np.int64) - signed(want, bits)
            if off.ndim and case.name in NEIGHBOURS:
                assert np.abs(off).max() == 1 and np.abs(off).sum() == NEIGHBOURS[case.name]
            else:
                assert not off.any()


def on_grid(x: np.ndarray, enc: Encoding) -> np.ndarray:
    return np.broadcast_to(x, enc.grid) if x.size == 1 else x.reshape(enc.grid)


def run_quantizelinear(case, inputs, outputs):
    x, scale, *zero = inputs
    name = format_of(outputs[0])
    enc, fmt = encoding(case, name, x.shape, scale), get_format(name)
    given = zero[0] if zero else np.zeros((), outputs[0].dtype)
    zero_point = on_grid(signed(given, fmt.bits), enc).astype(np.int32)

    def quantize(ops, x, scale, zero_point):
        return fmt.quantize_static(ops, x, scale, zero_point, enc)

    args = [x, np.ascontiguousarray(on_grid(scale, enc)), np.ascontiguousarray(zero_point)]
    return run_xla(build(Case(quantize, args)), args)


def run_dequantizelinear(case, inputs, outputs):
    q, scale, *zero = inputs
    fmt = get_format(format_of(q))
    enc = encoding(case, fmt.name, q.shape, scale)
    given = zero[0] if zero else np.zeros((), q.dtype)
    zero_point = on_grid(signed(given, fmt.bits), enc).astype(np.int32)

    def dequantize(ops, codes, scale, zero_point):
        return fmt.dequantize(ops, codes, scale, zero_point, enc)

    codes = signed(q, fmt.bits).astype(fmt.code_type)
    args = [codes, np.ascontiguousarray(on_grid(scale, enc)), np.ascontiguousarray(zero_point)]
    return run_xla(build(Case(dequantize, args)), args)


def run_dynamicquantizelinear(case, inputs, outputs):
    enc = Encoding("uint8", inputs[0].shape, (0,) * inputs[0].ndim, "asymmetric")

    def quantize(ops, x):
        return list(get_format("uint8").quantize_dynamic(ops, x, enc).values())

    codes, scale, zero = run_xla(build(Case(quantize, inputs)), inputs)
    return codes, scale.reshape(()), zero.reshape(())


def accumulate(product, a, a_zero, b, b_zero) -> np.ndarray:
    """`product` on integers by the pipeline: scales of 1, so that the result is the accumulator."""
    a, a_zero, b, b_zero = (signed(v, 8) for v in (a, a_zero, b, b_zero))
    za = int(a_zero.reshape(-1)[0])
    x = (a - za).astype(np.float32)
    block = (0,) * b.ndim if b_zero.size == 1 else (1, *[0] * (b.ndim - 1))
    enc = Encoding("int8", b.shape, block, "asymmetric")
    parts = {
        "codes": b.astype(np.int8),
        "scale": np.ones(enc.grid, np.float32),
        "zero_point": on_grid(b_zero, enc).astype(np.int8),
    }

    def fn(p, x):
        x = jq.fake_quant(x, scheme="asymmetric", range=(-128.0 - za, 127.0 - za))
        return product(x, p["b"])

    model = jq.Model(fn, {"b": QuantizedTensor(enc, parts)}, (x,))
    program = jq.rewrite(model)["integer"]
    lines = [s for s in program.text().splitlines() if "dot_general" in s or "convolution" in s]
    assert any(line.count("xi8>") == 2 and "xi32>" in line for line in lines)
    (total,) = evaluated(program, x)
    return total


def requantize(total, factor, scale, zero) -> np.ndarray:
    """The accumulator to int8 with given parameters, as the `qdq` level does."""
    enc = Encoding("int8", total.shape, (0,) * total.ndim, "asymmetric")
    args = [
        (total * np.float32(factor)).astype(np.float32),
        np.full(enc.grid, scale, np.float32),
        np.full(enc.grid, signed(zero, 8), np.int32),
    ]
    fmt = get_format("int8")
    return run_xla(
        build(Case(lambda ops, x, s, z: fmt.quantize_static(ops, x, s, z, enc), args)), args
    )[0]


def convolution(case):
    given = {a.name: list(a.ints) for a in case.model.graph.node[0].attribute}
    pads = given.get("pads", [0] * 4)
    padding = list(zip(pads[:2], pads[2:], strict=True))
    numbers = ("NCHW", "OIHW", "NCHW")
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, (1, 1), padding, dimension_numbers=numbers
    )


def run_matmulinteger(case, inputs, outputs):
    a, b, a_zero, b_zero = inputs
    return [accumulate(lambda x, w: x @ w, a, a_zero, b, b_zero)]


def run_convinteger(case, inputs, outputs):
    x, w, x_zero, *w_zero = inputs
    zero = w_zero[0] if w_zero else np.zeros((), w.dtype)
    return [accumulate(convolution(case), x, x_zero, w, zero)]


def run_qlinearmatmul(case, inputs, outputs):
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
    total = accumulate(lambda x, w: x @ w, a, a_zero, b, b_zero)
    return [requantize(total, np.float32(a_scale) * np.float32(b_scale), scale, zero)]


def run_qlinearconv(case, inputs, outputs):
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = inputs
    total = accumulate(convolution(case), x, x_zero, w, w_zero)
    return [requantize(total, x_scale * w_scale.reshape(1, -1, 1, 1), scale, zero)]
