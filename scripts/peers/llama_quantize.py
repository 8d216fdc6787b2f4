#!/usr/bin/env python3
"""llama.cpp's quantizer from its shared libraries, as `@node-llama-cpp/linux-x64` of npm has them:
`llama_quantize.py LIBRARIES IN.gguf OUT.gguf TYPE [IMPORTANCE.npz]`.

All matrices get the type (`q4_0`, `q4_k`, ...), rows that 256 does not divide what llama.cpp takes
then, the table of tokens Q8_0. IMPORTANCE.npz has a mean square for each column of a tensor, by the
tensor's name."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.llama_shared import libraries

# `llama_ftype` by a type of all matrices
TYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15}
TYPES |= {"q5_k": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24}
TYPES |= {"iq4_nl": 25, "iq3_s": 26, "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31}
TYPES |= {"tq1_0": 36, "tq2_0": 37}
Q8_0 = 8  # of ggml


class Importance(ctypes.Structure):
    """`llama_model_imatrix_data`; an entry without a name ends a list."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("size", ctypes.c_size_t),
    )


class Parameters(ctypes.Structure):
    """`llama_model_quantize_params`, and room for what later versions append."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("threads", "file", "output", "embedding")),
        *((name, ctypes.c_bool) for name in ("again", "head", "copy", "pure", "split", "dry")),
        ("importance", ctypes.POINTER(Importance)),
        ("more", ctypes.c_uint8 * 256),
    )


def main() -> None:
    folder, source, out, kind, *importance = sys.argv[1:]
    llama = libraries(Path(folder))
    llama.llama_model_quantize_default_params.restype = Parameters
    params = llama.llama_model_quantize_default_params()
    params.file, params.pure, params.embedding, params.threads = TYPES[kind], True, Q8_0, 1
    if importance:
        arrays = {n: a.astype(np.float32) for n, a in np.load(importance[0]).items()}
        entries = (Importance * (len(arrays) + 1))()
        for entry, (name, array) in zip(entries, arrays.items(), strict=False):
            data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entry.name, entry.data, entry.size = name.encode(), data, array.size
        params.importance = entries
    if llama.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
        sys.exit("llama.cpp could not quantize it")


if __name__ == "__main__":
    main()
