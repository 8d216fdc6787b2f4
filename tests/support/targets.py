"""The processors that what is planned, chosen, merged and fused is tested for, by name: on every
machine, whichever of them it has; and devices that are made up."""

from __future__ import annotations

from pathlib import Path

# Products of pairs in 16 bits, products in 32 bits, matrix tiles, and Arm's products of matrices.
EVERY = ("x86-64-v3", "avx512_vnni", "amx_int8", "aarch64_i8mm")

# Files of devices: an NPU with limits of shapes, one whose products have weights per tensor, one of
# three axes at most.
_FILES = Path(__file__).parents[1] / "device"
LIMITS = str(_FILES / "limits.toml")
PER_TENSOR_PRODUCTS = str(_FILES / "per_tensor_products.toml")
FEW_AXES = str(_FILES / "few_axes.toml")
