"""IREE's own way from quantize and dequantize to integers does not see ours: told when it does."""

from __future__ import annotations

import numpy as np

import jq
from jq.iree.compiler import HOST_FLAGS, compile_module

FLAG = "--iree-global-opt-enable-qdq-to-integer-math"


def test_the_flag_changes_nothing(tmp_path):
    """docs/how-to/iree-integer-math.md says so, of both forms of a product."""
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    model = jq.Model(lambda p, x: x @ p["w"], {"w": x.T @ x}, (x,), calibration=[(x,)])
    compiled = jq.compile(model, "int8-static", settings={"recovery": False}, emit="qdq")
    compiled.save(tmp_path / "out")
    typed = (tmp_path / "out/qdq.mlir").read_bytes()
    assert b"!quant.uniform" in typed
    for text in (typed, str(compiled.levels["qdq"].module).encode()):
        plain, flagged = (
            compile_module(text, flags=(*HOST_FLAGS, *more), keep_dump=False).vmfb
            for more in ((), (FLAG,))
        )
        assert plain == flagged
