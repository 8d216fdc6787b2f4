#!/usr/bin/env python3
"""Logits of llama.cpp: `llama_logits.py MODEL OUT.npy < TOKENS.json`.

Run by an interpreter that has `llama-cpp-python`. Writes f32 [tokens, vocabulary], those after
each token."""

from __future__ import annotations

import json
import sys

import llama_cpp  # type: ignore[import-not-found]
import numpy as np


def main() -> None:
    model, out = sys.argv[1:]
    tokens = json.load(sys.stdin)
    loaded = llama_cpp.Llama(
        model, n_ctx=len(tokens) + 8, n_threads=2, n_threads_batch=2, logits_all=True, verbose=False
    )
    loaded.eval(tokens)
    np.save(out, np.asarray(loaded.scores[: len(tokens)], np.float32))


if __name__ == "__main__":
    main()
