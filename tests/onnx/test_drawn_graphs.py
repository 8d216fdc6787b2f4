"""A small sample of drawn graphs; `scripts/onnx_drawn.py` draws more."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.onnx.drawn_graphs import problem


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 20))
def test_a_drawn_graph_that_onnxruntime_quantized_is_imported(seed: int) -> None:
    with TemporaryDirectory() as folder:
        assert problem(seed, Path(folder)) == ""
