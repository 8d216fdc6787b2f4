"""Operators of ONNX Runtime (`com.microsoft`) on weights of few bits, stored in blocks."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.indexing import from_front
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.quantized import dequantize, small_type, unpacked_fields
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator
from jq.frontends.onnx.values import (
    Codes,
    Weight,
    as_jax,
    best_known,
    bits_of,
    known,
    plain,
    to_signed,
    traced,
)


@operator("MatMulNBits", domain=MICROSOFT, codes=True)
def matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array = None,
    g_idx: Array = None,
    bias: Array = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    node: Call,
) -> Array:
    """Weights [N, K] in blocks along K, the low bits of a byte first; products with float.

    `g_idx` is the block of each index of K: columns are put in the order of their blocks.
    """
    x, columns = plain(a), None
    if g_idx is not None:
        columns = _in_blocks(known(g_idx), K, block_size, node)
        x = jnp.take(x, columns, axis=-1)
    weight = _blocked(b, scales, zero_points, (N, K), bits, block_size, node, columns)
    y = matmul(x, weight.T.astype(a.dtype))
    return y if bias is None else y + plain(bias)


def _in_blocks(groups: np.ndarray | None, width: int, block: int, node: Call) -> np.ndarray:
    """Indices of K in the order of their blocks."""
    if groups is None:
        raise node.refuse("g_idx that is computed is not supported")
    counts = np.bincount(groups[:width], minlength=-(-width // block))
    if (counts[:-1] != block).any() or counts[-1] != width - block * (len(counts) - 1):
        hint = "quantize the weight without act-order"
        raise node.refuse(f"g_idx whose groups are no blocks of {block} is not supported", hint)
    return np.argsort(groups[:width], kind="stable")


def _blocked(
    b: Any,
    scales: Any,
    zeros: Any,
    shape: tuple[int, int],
    bits: int,
    block: int,
    node: Call,
    columns: np.ndarray | None = None,
) -> Any:
    """The float matrix whose rows are stored in blocks, unsigned numbers in bytes."""
    if bits not in (2, 4, 8):
        raise node.refuse(f"weights of {bits} bits are not supported")
    rows, width = shape
    blocks = -(-width // block)
    kind = small_type(bits)
    codes = _fields(b, bits).reshape(rows, -1)[:, :width]
    codes = codes if columns is None else jnp.take(codes, columns, axis=1)
    factor = best_known(scales).reshape(rows, blocks)
    name = b.name if isinstance(b, Weight) else node.node.where
    half = 1 << (bits - 1)
    if zeros is None:
        zero: Any = np.full((rows, blocks), half, np.int32).astype(kind)
    elif np.dtype(zeros.dtype) == np.uint8:
        zero = Codes(_fields(zeros, bits).reshape(rows, -1)[:, :blocks], kind)
        data = known(zeros)
        if data is not None:
            zero = (unpacked_fields(data, bits).reshape(rows, -1)[:, :blocks]).astype(kind)
    else:
        return _from_float_zeros(
            codes, factor, best_known(zeros).reshape(rows, blocks) - half, block
        )
    return dequantize(Codes(codes, kind), factor, zero, axis=1, block=block, name=name)


def _from_float_zeros(codes: Any, factor: Any, zeros: Any, block: int) -> Any:
    """Zero points that need not be whole numbers: no format of ours has them."""
    zero, scale = (np.repeat(v, block, axis=1)[:, : codes.shape[1]] for v in (zeros, factor))
    return (codes.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)


def _fields(packed: Any, bits: int) -> Any:
    """Signed codes of numbers packed into bytes."""
    if bits == 8:
        return to_signed(packed)
    value = traced(packed)
    if isinstance(value, Codes) and bits_of(value.dtype) == bits:
        return value.signed  # a parameter of the model, which is held so
    byte = jnp.asarray(plain(packed)).astype(np.int32)
    parts = [(byte >> (bits * i)) & ((1 << bits) - 1) for i in range(8 // bits)]
    fields = jnp.stack(parts, -1) - (1 << (bits - 1))
    return fields.astype(np.int8).reshape(*packed.shape[:-1], -1)


@operator("GatherBlockQuantized", domain=MICROSOFT, codes=True)
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
    node: Call,
) -> Array:
    """Without zero points, bytes are in the middle of their numbers, and numbers of 4 bits at 0."""
    value, zero = traced(data), zero_points
    in_bytes = np.dtype(data.dtype) == np.uint8
    if in_bytes and bits < 8:
        value = Codes(_fields(data, bits), small_type(bits))
        if zero is not None:
            fields = unpacked_fields(best_known(zero), bits)[..., : scales.shape[-1]]
            zero = fields.astype(small_type(bits))
    axis = quantize_axis % len(value.shape)
    if zero is None and in_bytes:
        zero = np.full(scales.shape, 1 << (bits - 1), np.int32).astype(value.dtype)
    table = dequantize(value, scales, zero, axis=axis, block=block_size, name=node.node.where)
    index = from_front(as_jax(indices), table.shape[gather_axis])
    return jnp.take(table, index, axis=gather_axis, mode="clip").astype(scales.dtype)
