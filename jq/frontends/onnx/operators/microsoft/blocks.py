"""Operators of ONNX Runtime (`com.microsoft`) on weights of few bits, stored in blocks."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx import values
from jq.frontends.onnx.operators.indexing import from_front
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.quantized import dequantize, small_type, unpacked_fields
from jq.frontends.onnx.registry import Array, Call, Given, microsoft

NBITS = (
    "a[... K] b[N blocks bytes] scales[N blocks / N*blocks] zero_points[N zeros / N*zeros]?"
    " g_idx[K / blocks*block_size]? bias[N]?; K N bits=4 block_size accuracy_level=0"
)
GATHERED = "data indices scales zero_points?; gather_axis=0 quantize_axis=1 block_size=128 bits=4"


@microsoft("MatMulNBits", codes=True, takes=NBITS)
def matmul_nbits(o: Given) -> Array:
    """Weights [N, K] in blocks along K, the low bits of a byte first; products with float.

    `g_idx` is the block of each index of K: columns are put in the order of their blocks."""
    x, columns = values.plain(o.a), None
    if o.g_idx is not None:
        columns = _in_blocks(values.known(o.g_idx), o.K, o.block_size, o.node)
        x = jnp.take(x, columns, axis=-1)
    y = matmul(x, _blocked(o, columns).T.astype(o.a.dtype))
    return y if o.bias is None else y + values.plain(o.bias)


def _in_blocks(groups: np.ndarray | None, width: int, block: int, node: Call) -> np.ndarray:
    """Indices of K in the order of their blocks."""
    if groups is None:
        raise node.refuse("g_idx that is computed is not supported")
    counts = np.bincount(groups[:width], minlength=-(-width // block))
    if (counts[:-1] != block).any() or counts[-1] != width - block * (len(counts) - 1):
        hint = "quantize the weight without act-order"
        raise node.refuse(f"g_idx whose groups are no blocks of {block} is not supported", hint)
    return np.argsort(groups[:width], kind="stable")


def _blocked(o: Given, columns: np.ndarray | None) -> Any:
    """The float matrix whose rows are stored in blocks, unsigned numbers in bytes."""
    bits, block, zeros = o.bits, o.block_size, o.zero_points
    if bits not in (2, 4, 8):
        raise o.node.refuse(f"weights of {bits} bits are not supported")
    rows, blocks, kind = o.N, -(-o.K // block), small_type(bits)
    codes = _fields(o.b, bits).reshape(rows, -1)[:, : o.K]
    codes = codes if columns is None else jnp.take(codes, columns, axis=1)
    factor = values.best_known(o.scales).reshape(rows, blocks)
    half = 1 << (bits - 1)
    if zeros is None:
        zero: Any = np.full((rows, blocks), half, np.int32).astype(kind)
    elif np.dtype(zeros.dtype) != np.uint8:  # no whole numbers, perhaps: no format of ours has them
        pair = values.best_known(zeros).reshape(rows, blocks) - half, factor
        floats, scale = (np.repeat(v, block, axis=1)[:, : o.K].astype(np.float32) for v in pair)
        return (codes.astype(np.float32) - floats) * scale
    elif (data := values.known(zeros)) is not None:
        zero = unpacked_fields(data, bits).reshape(rows, -1)[:, :blocks].astype(kind)
    else:
        zero = values.Codes(_fields(zeros, bits).reshape(rows, -1)[:, :blocks], kind)
    name = o.b.name if isinstance(o.b, values.Weight) else o.where
    return dequantize(values.Codes(codes, kind), factor, zero, axis=1, block=block, name=name)


def _fields(packed: Any, bits: int) -> Any:
    """Signed codes of numbers packed into bytes."""
    if bits == 8:
        return values.to_signed(packed)
    value = values.traced(packed)
    if isinstance(value, values.Codes) and values.bits_of(value.dtype) == bits:
        return value.signed  # a parameter of the model, which is held so
    byte = jnp.asarray(values.plain(packed)).astype(np.int32)
    parts = [(byte >> (bits * i)) & ((1 << bits) - 1) for i in range(8 // bits)]
    fields = jnp.stack(parts, -1) - (1 << (bits - 1))
    return fields.astype(np.int8).reshape(*packed.shape[:-1], -1)


@microsoft("GatherBlockQuantized", codes=True, takes=GATHERED)
def gather_block_quantized(o: Given) -> Array:
    """Bytes without zero points are in the middle of their numbers, numbers of 4 bits at 0."""
    value, zero, bits = values.traced(o.data), o.zero_points, o.bits
    in_bytes = np.dtype(o.data.dtype) == np.uint8
    if in_bytes and bits < 8:
        value = values.Codes(_fields(o.data, bits), small_type(bits))
        if zero is not None:
            fields = unpacked_fields(values.best_known(zero), bits)[..., : o.scales.shape[-1]]
            zero = fields.astype(small_type(bits))
    axis = o.quantize_axis % len(value.shape)
    if zero is None and in_bytes:
        zero = np.full(o.scales.shape, 1 << (bits - 1), np.int32).astype(value.dtype)
    table = dequantize(value, o.scales, zero, axis=axis, block=o.block_size, name=o.where)
    index = from_front(values.as_jax(o.indices), table.shape[o.gather_axis])
    return jnp.take(table, index, axis=o.gather_axis, mode="clip").astype(o.scales.dtype)
