"""The processors that what is planned, chosen, merged and fused is tested for, by name: on every
machine, whichever of them it has."""

from __future__ import annotations

# Products of pairs in 16 bits, products in 32 bits, matrix tiles, and Arm's products of matrices.
EVERY = ("x86-64-v3", "avx512_vnni", "amx_int8", "aarch64_i8mm")
