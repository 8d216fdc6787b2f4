#!/usr/bin/env python3
"""Writes tests/frontends/checkpoints/packed_weights.safetensors: one matrix as the programs that
quantize language models store it, and what they decode it to.

    pip install torch transformers bitsandbytes compressed-tensors   # elsewhere: tests need none
    python scripts/oracles/write_packed_weights.py --gptq FOLDER_OF_auto_gptq --awq FOLDER_OF_awq
        tests/frontends/checkpoints/packed_weights.safetensors

The two folders hold the packages AutoGPTQ and AutoAWQ, of which only the modules that pack are
imported: the packages themselves want older versions of others. For each layout the file has the
tensors of a module, and its weight in float32 as `decoded`; the metadata has the config of each
layout and the versions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import types
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    import torch
    from safetensors.torch import save_file
except ImportError:  # `--help` needs neither
    torch = None

OUT, IN, GROUP = 32, 64, 32
Layout = tuple[dict[str, Any], dict[str, Any], Any]  # config, tensors, decoded


def drawn() -> Any:
    weight = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(0))
    return weight * torch.linspace(0.5, 2.0, OUT)[:, None]  # rows differ in size


def bare(folder: Path, *names: str) -> None:
    """Packages whose modules can be imported, but not what stands in their `__init__.py`."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(folder.parent / name.replace(".", "/"))]
        sys.modules[name] = package


def grid(weight: Any, bits: int, group: int) -> tuple[Any, Any]:
    """Scales and zero points [out, groups] that reach from the least to the largest number."""
    blocks = weight.reshape(OUT, -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    scale = ((high - low) / (2**bits - 1)).half().float()
    return scale, torch.round(-low / scale).clamp(1, 2**bits - 1)


def linear(weight: Any) -> Any:
    made = torch.nn.Linear(IN, OUT, bias=False)
    made.weight.data = weight.clone()
    return made


def gptq(weight: Any, folder: Path, bits: int) -> Layout:
    bare(folder, "auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear")
    module = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda_old")
    made = module.QuantLinear(bits, GROUP, IN, OUT, False)
    scale, zero = grid(weight, bits, GROUP)
    clipped = linear(within(weight, scale, zero, bits))
    made.pack(clipped, scale.clone(), zero.clone(), None)
    tensors = {name: getattr(made, name) for name in ("qweight", "qzeros", "scales", "g_idx")}
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP}
    return config, tensors, made(torch.eye(IN)).T


def within(weight: Any, scale: Any, zero: Any, bits: int) -> Any:
    """The values clipped to what codes can reach: the packing does not saturate."""
    wide, middle = (x.repeat_interleave(IN // x.shape[1], 1) for x in (scale, zero))
    return torch.maximum(torch.minimum(weight, (2**bits - 1 - middle) * wide), -middle * wide)


def awq(weight: Any, folder: Path) -> Layout:
    bare(folder, "awq", "awq.modules", "awq.modules.linear", "awq.utils")
    module = importlib.import_module("awq.modules.linear.gemm")
    scale, zero = grid(weight, 4, GROUP)
    clipped = linear(within(weight, scale, zero, 4))
    given = scale.T.contiguous(), zero.T.contiguous()
    made = module.WQLinear_GEMM.from_linear(clipped, 4, GROUP, scales=given[0], zeros=given[1])
    tensors = {name: getattr(made, name) for name in ("qweight", "qzeros", "scales")}
    decoded = module.dequantize_gemm(made.qweight, made.qzeros, made.scales, 4, GROUP)
    return {"quant_method": "awq", "version": "gemm", "bits": 4}, tensors, decoded.T


def nf4(weight: Any, nested: bool) -> Layout:
    from bitsandbytes import functional  # type: ignore[import-not-found,unused-ignore]

    made, state = functional.quantize_4bit(
        weight, blocksize=64, compress_statistics=nested, quant_type="nf4"
    )
    tensors = {"weight": made}
    tensors |= {f"weight.{key}": part for key, part in state.as_dict(packed=True).items()}
    return {"quant_method": "bitsandbytes"}, tensors, functional.dequantize_4bit(made, state)


def int8(weight: Any) -> Layout:
    from bitsandbytes import functional

    codes, most, _ = functional.int8_vectorwise_quant(weight.half())
    decoded = functional.int8_vectorwise_dequant(codes, most)
    return {"quant_method": "bitsandbytes"}, {"weight": codes, "SCB": most}, decoded


def compressed(weight: Any, name: str, **given: Any) -> Layout:
    from compressed_tensors.compressors import BaseCompressor  # type: ignore[import-not-found,unused-ignore]
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # type: ignore[import-not-found,unused-ignore]

    args = QuantizationArgs(**given)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    if given["type"] == "float":
        scale, zero = weight.abs().amax(1, keepdim=True) / 448, None
    else:
        scale, zero = grid(weight, given["num_bits"], given.get("group_size") or IN)
        zero = (zero - 2 ** (given["num_bits"] - 1)).to(torch.int8)
    state = {"weight": weight, "weight_scale": scale}
    if not given["symmetric"]:
        state["weight_zero_point"] = zero
    kind = BaseCompressor.get_value_from_registry(name)
    tensors = kind.compress(state, scheme)
    return (
        {"quant_method": "compressed-tensors"},
        tensors,
        kind.decompress(tensors, scheme)["weight"],
    )


def fp8(weight: Any) -> Layout:
    from transformers import FineGrainedFP8Config  # type: ignore[import-not-found,unused-ignore]
    from transformers.integrations import finegrained_fp8 as module  # type: ignore[import-not-found,unused-ignore]

    config = FineGrainedFP8Config(weight_block_size=(16, 32))
    quantizer = types.SimpleNamespace(quantization_config=config)
    made = module.Fp8Quantize(quantizer).convert({"weight": weight})
    tensors = {name: made[name] for name in ("weight", "weight_scale_inv")}
    decoded = module.Fp8Dequantize(quantizer).convert(dict(tensors))["weight"]
    return {"quant_method": "fp8", "weight_block_size": [16, 32]}, tensors, decoded


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gptq", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--awq", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    if torch is None:
        parser.error("there is no torch here; see the top of this file")
    weight = drawn()
    integers = {"type": "int", "strategy": "group", "group_size": GROUP}
    layouts: dict[str, Callable[[], Layout]] = {
        **{f"gptq-{bits}": lambda b=bits: gptq(weight, given.gptq, b) for bits in (2, 3, 4, 8)},  # type: ignore[misc]
        "awq": lambda: awq(weight, given.awq),
        "nf4": lambda: nf4(weight, False),
        "nf4-nested": lambda: nf4(weight, True),
        "int8": lambda: int8(weight),
        "packed-4": lambda: compressed(
            weight, "pack-quantized", num_bits=4, symmetric=True, **integers
        ),
        "packed-4-zero": lambda: compressed(
            weight, "pack-quantized", num_bits=4, symmetric=False, **integers
        ),
        "integers": lambda: compressed(
            weight, "int-quantized", num_bits=8, symmetric=True, type="int", strategy="channel"
        ),
        "floats": lambda: compressed(
            weight, "float-quantized", num_bits=8, symmetric=True, type="float", strategy="channel"
        ),
        "fp8": lambda: fp8(weight),
    }
    tensors, configs = {}, {}
    for name, make in layouts.items():
        configs[name], parts, decoded = make()
        parts = {**parts, "decoded": decoded.detach().float()}
        tensors |= {f"{name}/{part}": t.detach().contiguous() for part, t in parts.items()}
    packages = ("bitsandbytes", "compressed-tensors", "transformers", "torch")
    versions = {name: version(name) for name in packages}
    metadata = {"configs": json.dumps(configs), "versions": json.dumps(versions)}
    save_file(tensors, given.out, metadata)


if __name__ == "__main__":
    main()
