"""Quantized checkpoints in the layouts of the programs that write them, each code put into its
place by a loop, and the float weights that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from tests.support.decoders import CASES, weights

GROUP = 16
AWQ_ROWS = (0, 2, 4, 6, 1, 3, 5, 7)  # which row a nibble of a word is of


def bits_of(values: np.ndarray, bits: int, order=None) -> np.ndarray:
    """Words i32 [rows, n * bits / 32] of codes [rows, n], a bit at a time, lowest first."""
    out = np.zeros((len(values), values.shape[1] * bits // 32), np.uint32)
    for i in range(values.shape[1]):
        per = 32 // bits
        place = i if order is None else i // per * per + order.index(i % per)
        for bit in range(bits):
            word, shift = divmod(place * bits + bit, 32)
            out[:, word] |= (values[:, i].astype(np.uint32) >> bit & 1) << np.uint32(shift)
    return out.view(np.int32)


def grouped(rng, weight, bits, group=GROUP, symmetric=False, scale_type=np.float16):
    """Codes u8 [out, in], scales and zero points [out, groups], and the float weight."""
    out, columns = weight.shape
    blocks = weight.reshape(out, -1, group or columns)
    top = (1 << bits) - 1
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scale = ((high - low) / top + 1e-6).astype(scale_type)
    zero = np.clip(np.rint(-low / scale.astype(np.float32)), 0, top)
    if symmetric:
        zero = np.full(zero.shape, 1 << (bits - 1))
    wide = scale.astype(np.float32)[..., None]
    codes = np.clip(np.rint(blocks / wide) + zero[..., None], 0, top)
    decoded = ((codes - zero[..., None]) * wide).reshape(out, columns).astype(np.float32)
    return codes.reshape(out, columns).astype(np.uint8), scale, zero.astype(np.uint8), decoded


def gptq(rng, weight, bits=4, symmetric=False, in_order=True, group=GROUP, less=1):
    codes, scale, zero, decoded = grouped(rng, weight, bits, group, symmetric)
    columns = weight.shape[1]
    group_of = np.arange(columns, dtype=np.int32) // (group or columns)
    if not in_order:  # the column that comes k-th is in group k // GROUP
        moved = rng.permutation(columns)
        group_of, codes, decoded = group_of[moved], codes[:, moved], decoded[:, moved]
    stored = (zero.astype(np.int32) - less) & ((1 << bits) - 1)
    return {
        "qweight": bits_of(codes, bits).T.copy(),
        "qzeros": bits_of(stored.T, bits),
        "scales": scale.T.copy(),
        "g_idx": group_of,
    }, decoded


def awq(rng, weight):
    codes, scale, zero, decoded = grouped(rng, weight, 4)
    return {
        "qweight": bits_of(codes.T, 4, AWQ_ROWS),
        "qzeros": bits_of(zero.T, 4, AWQ_ROWS),
        "scales": scale.T.copy(),
    }, decoded


def packed(rng, weight, bits=4, symmetric=True, group=GROUP):
    kind = ml_dtypes.bfloat16
    codes, scale, zero, decoded = grouped(rng, weight, bits, group, symmetric, kind)
    found = {
        "weight_packed": bits_of(codes, bits),
        "weight_scale": scale,
        "weight_shape": np.array(weight.shape, np.int64),
    }
    if not symmetric:
        found["weight_zero_point"] = bits_of(zero.T, bits).T.copy()
    return found, decoded


def integers(rng, weight):
    codes, scale, _, decoded = grouped(rng, weight, 8, 0, True, np.float32)
    return {
        "weight": (codes.astype(np.int16) - 128).astype(np.int8),
        "weight_scale": scale,
    }, decoded


def float8(rng, weight, block=None, name="weight_scale_inv"):
    out, columns = weight.shape
    rows, cols = block or (1, columns)
    grid = (-(-out // rows), -(-columns // cols))
    scale = (0.5 + rng.random(grid)).astype(np.float32) / 100
    wide = np.repeat(np.repeat(scale, rows, 0), cols, 1)[:out, :columns]
    codes = np.clip(weight / wide, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": codes, name: scale}, codes.astype(np.float32) * wide


def nvfp4(rng, weight):
    out, columns = weight.shape
    codes = rng.integers(0, 16, (out, columns), np.uint8)
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scale = (rng.random((out, columns // 16)) * 30 + 1).astype(ml_dtypes.float8_e4m3fn)
    whole = np.array([448.0], np.float32)
    decoded = table[codes] * np.repeat(scale.astype(np.float32) / whole, 16, 1)
    both = codes[:, ::2] | codes[:, 1::2] << 4
    return {"weight_packed": both, "weight_scale": scale, "weight_global_scale": whole}, decoded


def nf4(rng, weight, nested=True, size=32):
    from jq.formats.floats import NORMAL_QUANTILES

    table = np.array(NORMAL_QUANTILES, np.float32)
    codes = rng.integers(0, 16, weight.size, np.uint8)
    count = weight.size // size
    absmax = rng.random(count).astype(np.float32) + 0.1
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": size, "shape": list(weight.shape)}
    found = {"weight": (codes[::2] << 4 | codes[1::2])[:, None], "weight.quant_map": table}
    if nested:
        steps = np.sort(rng.random(256).astype(np.float32)) - np.float32(0.5)
        picked = rng.integers(0, 256, count, np.uint8)
        most = rng.random(-(-count // 256)).astype(np.float32) + np.float32(0.1)
        state |= {"nested_blocksize": 256, "nested_offset": 0.75, "nested_dtype": "float32"}
        absmax = steps[picked] * np.repeat(most, 256)[:count] + np.float32(0.75)
        found |= {"weight.absmax": picked, "weight.nested_absmax": most}
        found["weight.nested_quant_map"] = steps
    else:
        found["weight.absmax"] = absmax
    text = json.dumps(state).encode()
    found["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8).copy()
    return found, (table[codes] * np.repeat(absmax, size)).reshape(weight.shape)


def llm_int8(rng, weight):
    most = np.abs(weight).max(1)
    codes = np.rint(weight * (127 / most[:, None])).astype(np.int8)
    found = {"weight": codes, "SCB": most, "weight_format": np.array(0, np.uint8)}
    return found, codes.astype(np.float32) * (most[:, None] / np.float32(127))


def mlx(rng, weight, bits=4, kind=np.float16):
    """Groups of 32 columns, as `mx.quantize` gives them: the end of larger magnitude is exact."""
    out, columns = weight.shape
    blocks = weight.reshape(out, -1, 32)
    low, high = blocks.min(-1), blocks.max(-1)
    scale = np.where(-low > high, 1, -1) * (high - low) / ((1 << bits) - 1)
    edge = np.where(-low > high, low, high)
    scale, bias = (edge / np.rint(edge / scale)).astype(kind), edge.astype(kind)
    wide, start = scale.astype(np.float32)[..., None], bias.astype(np.float32)[..., None]
    codes = np.clip(np.rint((blocks - start) / wide), 0, (1 << bits) - 1).astype(np.uint8)
    found = {
        "weight": bits_of(codes.reshape(out, columns), bits).view(np.uint32),
        "scales": scale,
        "biases": bias,
    }
    return found, (codes * wide + start).reshape(out, columns)


def mlx_mxfp4(rng, weight):
    out, columns = weight.shape
    codes = rng.integers(0, 16, (out, columns), np.uint8)
    exponents = rng.integers(120, 130, (out, columns // 32), np.uint8)
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    decoded = table[codes] * np.repeat(np.exp2(exponents.astype(np.float32) - 127), 32, 1)
    return {"weight": bits_of(codes, 4).view(np.uint32), "scales": exponents}, decoded


LAYOUTS = {
    "gptq": ({"quant_method": "gptq"}, gptq),
    "gptq-symmetric": ({"quant_method": "gptq"}, lambda r, w: gptq(r, w, symmetric=True)),
    "gptq-act-order": ({"quant_method": "gptq"}, lambda r, w: gptq(r, w, in_order=False)),
    "gptq-act-order-32": (
        {"quant_method": "gptq"},
        lambda r, w: gptq(r, w, in_order=False, group=32),
    ),
    "gptq-2": ({"quant_method": "gptq"}, lambda r, w: gptq(r, w, 2)),
    "gptq-3": ({"quant_method": "gptq"}, lambda r, w: gptq(r, w, 3)),
    "gptq-8-channel": ({"quant_method": "gptq"}, lambda r, w: gptq(r, w, 8, group=0)),
    "gptq-v2": (
        {"quant_method": "gptq", "checkpoint_format": "gptq_v2"},
        lambda r, w: gptq(r, w, less=0),
    ),
    "awq": ({"quant_method": "awq", "version": "gemm", "bits": 4}, awq),
    "packed": ({"quant_method": "compressed-tensors"}, packed),
    "packed-zero-points": (
        {"quant_method": "compressed-tensors"},
        lambda r, w: packed(r, w, symmetric=False),
    ),
    "packed-8": ({"quant_method": "compressed-tensors"}, lambda r, w: packed(r, w, 8, group=0)),
    "integers": ({"quant_method": "compressed-tensors"}, integers),
    "floats": (
        {"quant_method": "compressed-tensors"},
        lambda r, w: float8(r, w, name="weight_scale"),
    ),
    "nvfp4": ({"quant_method": "compressed-tensors"}, nvfp4),
    "fp8": (
        {"quant_method": "fp8", "weight_block_size": [32, 16]},
        lambda r, w: float8(r, w, (32, 16)),
    ),
    "nf4": ({"quant_method": "bitsandbytes"}, nf4),
    "nf4-plain": ({"quant_method": "bitsandbytes"}, lambda r, w: nf4(r, w, nested=False)),
    "int8": ({"quant_method": "bitsandbytes"}, llm_int8),
    "mlx": ({"group_size": 32, "bits": 4}, mlx),
    "mlx-2": ({"group_size": 32, "bits": 2}, lambda r, w: mlx(r, w, 2)),
    "mlx-3": ({"group_size": 32, "bits": 3}, lambda r, w: mlx(r, w, 3)),
    "mlx-5": ({"group_size": 32, "bits": 5}, lambda r, w: mlx(r, w, 5)),
    "mlx-bfloat16": ({"group_size": 32}, lambda r, w: mlx(r, w, kind=ml_dtypes.bfloat16)),
    "mlx-mxfp4": ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, mlx_mxfp4),
}


def write_checkpoint(case: str, layout: str, folder: Path) -> dict[str, np.ndarray]:
    """The case with the products of its layers in a layout; the float weights by their names."""
    folder.mkdir(exist_ok=True)
    config, make = LAYOUTS[layout]
    rng, stored, floats = np.random.default_rng(1), {}, {}
    for name, array in weights(case).items():
        stored[name] = floats[name] = array
        if name.endswith("_proj.weight"):
            del stored[name]
            tensors, decoded = make(rng, array)
            floats[name] = np.ascontiguousarray(decoded)
            stem = name.removesuffix("weight")
            stored |= {f"{stem}{part}": np.ascontiguousarray(t) for part, t in tensors.items()}
    key = "quantization" if layout.startswith("mlx") else "quantization_config"
    made = {**CASES[case]["config"], key: config}
    (folder / "config.json").write_text(json.dumps(made))
    save_file(stored, folder / "model.safetensors")
    return floats
