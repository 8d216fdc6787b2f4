#!/usr/bin/env python3
"""Logits of llama.cpp from its shared libraries, as `@node-llama-cpp/linux-x64` of npm has them:
`llama_shared.py LIBRARIES MODEL OUT.npy < TOKENS.json`.

Writes f32 [tokens, vocabulary], those after each token, which are given one by one. Structures of
parameters are passed as they come: a callee copies the size that it knows.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


class Parameters(ctypes.Structure):
    """Those of a model, or of a context: larger than both."""

    _fields_ = (("data", ctypes.c_uint8 * 1024),)


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = (("count", ctypes.c_int32), ("arrays", ctypes.c_void_p * 6))


def libraries(folder: Path) -> Any:
    """libllama of a folder, with its kernels for this processor."""

    def library(stem: str) -> Any:
        return ctypes.CDLL(str(next(folder.glob(f"{stem}*.so*"))), mode=ctypes.RTLD_GLOBAL)

    library("libggml-base")
    library("libggml.").ggml_backend_load_all_from_path(str(folder).encode())
    found = library("libllama.")
    found.llama_backend_init()
    return found


class Llama:
    """A model of a GGUF file on one thread.

    Raises:
        SystemExit: llama.cpp refuses it.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self.llama = libraries(folder)
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(self.llama, name).restype = Parameters
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory"):
            getattr(self.llama, name).restype = ctypes.c_void_p
        for name in ("llama_model_get_vocab", "llama_get_logits_ith"):
            getattr(self.llama, name).restype = ctypes.c_void_p
        self.llama.llama_batch_get_one.restype = Batch
        params = self.llama.llama_model_default_params()
        loaded = ctypes.c_void_p(self.llama.llama_model_load_from_file(model.encode(), params))
        if not loaded:
            sys.exit("llama.cpp refuses the file")
        vocabulary = ctypes.c_void_p(self.llama.llama_model_get_vocab(loaded))
        self.vocabulary = int(self.llama.llama_vocab_n_tokens(vocabulary))
        params = self.llama.llama_context_default_params()
        self.context = ctypes.c_void_p(self.llama.llama_init_from_model(loaded, params))
        if not self.context:
            sys.exit("llama.cpp makes no context of it")
        self.llama.llama_set_n_threads(self.context, 1, 1)

    def clear(self) -> None:
        """Forgets all tokens."""
        memory = ctypes.c_void_p(self.llama.llama_get_memory(self.context))
        self.llama.llama_memory_clear(memory, ctypes.c_bool(True))

    def take(self, tokens: list[int]) -> np.ndarray:
        """The logits f32[vocabulary] after the last of some tokens."""
        given = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self.llama.llama_batch_get_one(given, len(tokens))
        if self.llama.llama_decode(self.context, batch):
            sys.exit("llama.cpp cannot take in these tokens")
        found = self.llama.llama_get_logits_ith(self.context, -1)
        numbers = ctypes.cast(found, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(numbers, (self.vocabulary,)).copy()


def main() -> None:
    libraries, model, out = sys.argv[1:]
    loaded = Llama(Path(libraries), model)
    np.save(out, np.stack([loaded.take([token]) for token in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
