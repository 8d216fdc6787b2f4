"""A small sample of drawn graphs; `scripts/suite.py onnx_drawn` draws more."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnxruntime.quantization import quantize_dynamic

from tests.frontends.onnx import drawn_graphs
from tests.frontends.onnx.against_ort import one_node
from tests.frontends.onnx.drawn_graphs import Drawn, outcome


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 20))
def test_a_drawn_graph_that_onnxruntime_quantized_is_imported(seed: int) -> None:
    with TemporaryDirectory() as folder:
        found = outcome(seed, Path(folder))
    assume(not found.not_compared)  # another is drawn; too many of them fail the test
    assert found.wrong == ""


def test_a_file_that_onnxruntime_cannot_run_is_not_counted_as_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ConvInteger` has no form for activations of 16 bits."""

    def quantized(seed: int, folder: Path) -> Drawn:
        codes = {"x": np.zeros(drawn_graphs.IMAGE, np.int16), "w": np.zeros((1, 4, 1, 1), np.int8)}
        onnx.save(one_node("ConvInteger", codes, domain=""), folder / "quantized.onnx")
        return Drawn(folder / "quantized.onnx", "made by hand", {}, codes["x"])

    monkeypatch.setattr(drawn_graphs, "quantized", quantized)
    found = outcome(0, tmp_path)
    assert found.wrong == "" and "ConvInteger" in found.not_compared


def test_only_what_the_quantizer_raises_is_its_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: Any) -> str:
        raise KeyError("a mistake of ours")

    def refused(draw: Any, source: Path, path: Path, samples: Any) -> str:
        quantize_dynamic(tmp_path / "none.onnx", path)
        return ""

    monkeypatch.setattr(drawn_graphs, "written", mistaken)
    with pytest.raises(KeyError, match="a mistake of ours"):
        outcome(0, tmp_path)
    monkeypatch.setattr(drawn_graphs, "written", refused)
    assert outcome(0, tmp_path).not_compared.startswith("not quantized: ")
