"""Tensor types of ggml: their numbers in a file, block sizes, and what we read them as.

Source: `enum ggml_type` and the type traits of ggml; the tests compare with `gguf.constants`."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class TensorType:
    """`bytes` bytes hold `block` values; read as a plain `dtype`, or in a `format` of ours.

    A type with neither is known by name and size alone."""

    name: str
    block: int
    bytes: int
    dtype: np.dtype[Any] | None = None
    format: str | None = None


# What is read as it is, and blocks: number, name, values and bytes, and our format if there is one.
_PLAIN = (
    "0 F32 f4, 1 F16 f2, 24 I8 i1, 25 I16 i2, 26 I32 i4, 27 I64 i8, 28 F64 f8, 30 BF16 bfloat16"
)
_BLOCKS = """
2 Q4_0 32 18 q4_0, 3 Q4_1 32 20 q4_1, 6 Q5_0 32 22 q5_0, 7 Q5_1 32 24 q5_1, 8 Q8_0 32 34 q8_0,
9 Q8_1 32 40, 10 Q2_K 256 84 q2_k, 11 Q3_K 256 110 q3_k, 12 Q4_K 256 144 q4_k,
13 Q5_K 256 176 q5_k, 14 Q6_K 256 210 q6_k, 15 Q8_K 256 292, 16 IQ2_XXS 256 66 iq2_xxs,
17 IQ2_XS 256 74 iq2_xs, 18 IQ3_XXS 256 98 iq3_xxs, 19 IQ1_S 256 50 iq1_s,
20 IQ4_NL 32 18 iq4_nl, 21 IQ3_S 256 110 iq3_s, 22 IQ2_S 256 82 iq2_s, 23 IQ4_XS 256 136 iq4_xs,
29 IQ1_M 256 56 iq1_m, 34 TQ1_0 256 54 tq1_0, 35 TQ2_0 256 66 tq2_0, 39 MXFP4 32 17 ggml_mxfp4,
40 NVFP4 64 36, 41 Q1_0 128 18
"""
TYPES: dict[int, TensorType] = {}
for number, name, kind in map(str.split, _PLAIN.split(",")):
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else f"<{kind}")
    TYPES[int(number)] = TensorType(name, 1, dtype.itemsize, dtype)
for number, name, block, size, *given in map(str.split, _BLOCKS.split(",")):
    TYPES[int(number)] = TensorType(name, int(block), int(size), None, *given)
