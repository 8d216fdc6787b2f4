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


def _plain(name: str, dtype: Any) -> TensorType:
    kind = np.dtype(dtype)
    kind = kind if kind.name == "bfloat16" else kind.newbyteorder("<")
    return TensorType(name, 1, kind.itemsize, kind)


def _block(name: str, block: int, size: int, fmt: str | None = None) -> TensorType:
    return TensorType(name, block, size, None, fmt)


TYPES: dict[int, TensorType] = {
    0: _plain("F32", np.float32),
    1: _plain("F16", np.float16),
    2: _block("Q4_0", 32, 18, "q4_0"),
    3: _block("Q4_1", 32, 20, "q4_1"),
    6: _block("Q5_0", 32, 22, "q5_0"),
    7: _block("Q5_1", 32, 24, "q5_1"),
    8: _block("Q8_0", 32, 34, "q8_0"),
    9: _block("Q8_1", 32, 40),
    10: _block("Q2_K", 256, 84, "q2_k"),
    11: _block("Q3_K", 256, 110, "q3_k"),
    12: _block("Q4_K", 256, 144, "q4_k"),
    13: _block("Q5_K", 256, 176, "q5_k"),
    14: _block("Q6_K", 256, 210, "q6_k"),
    15: _block("Q8_K", 256, 292),
    16: _block("IQ2_XXS", 256, 66, "iq2_xxs"),
    17: _block("IQ2_XS", 256, 74, "iq2_xs"),
    18: _block("IQ3_XXS", 256, 98, "iq3_xxs"),
    19: _block("IQ1_S", 256, 50, "iq1_s"),
    20: _block("IQ4_NL", 32, 18, "iq4_nl"),
    21: _block("IQ3_S", 256, 110, "iq3_s"),
    22: _block("IQ2_S", 256, 82, "iq2_s"),
    23: _block("IQ4_XS", 256, 136, "iq4_xs"),
    24: _plain("I8", np.int8),
    25: _plain("I16", np.int16),
    26: _plain("I32", np.int32),
    27: _plain("I64", np.int64),
    28: _plain("F64", np.float64),
    29: _block("IQ1_M", 256, 56, "iq1_m"),
    30: _plain("BF16", ml_dtypes.bfloat16),
    34: _block("TQ1_0", 256, 54, "tq1_0"),
    35: _block("TQ2_0", 256, 66, "tq2_0"),
    39: _block("MXFP4", 32, 17, "ggml_mxfp4"),
    40: _block("NVFP4", 64, 36),
    41: _block("Q1_0", 128, 18),
}
