#!/usr/bin/env python3
"""llama.cpp's quantizer: `llama_quantize.py IN.gguf OUT.gguf TYPE [IMPORTANCE.npz]`.

Run by an interpreter that has `llama-cpp-python`. All matrices get the type (`q4_0`, `q4_k`, ...),
rows that 256 does not divide what llama.cpp takes then, the table of tokens Q8_0. IMPORTANCE.npz
has a mean square for each column of a tensor, by the tensor's name."""

from __future__ import annotations

import ctypes
import sys

import llama_cpp  # type: ignore[import-not-found]
import numpy as np

TYPES = {"q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q8_0": "Q8_0"}
TYPES |= {"q2_k": "Q2_K", "q3_k": "Q3_K_M", "q4_k": "Q4_K_M", "q5_k": "Q5_K_M", "q6_k": "Q6_K"}
Q8_0 = 8  # of ggml


class Importance(ctypes.Structure):
    """`llama_model_imatrix_data`; an entry without a name ends a list."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("size", ctypes.c_size_t),
    )


def main() -> None:
    source, out, kind, *importance = sys.argv[1:]
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{TYPES[kind]}")
    params.pure, params.token_embedding_type, params.nthread = True, Q8_0, 1
    if importance:
        arrays = {n: a.astype(np.float32) for n, a in np.load(importance[0]).items()}
        entries = (Importance * (len(arrays) + 1))()
        for entry, (name, array) in zip(entries, arrays.items(), strict=False):
            data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entry.name, entry.data, entry.size = name.encode(), data, array.size
        params.imatrix = ctypes.cast(entries, type(params.imatrix))
    if llama_cpp.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
        sys.exit("llama.cpp could not quantize it")


if __name__ == "__main__":
    main()
