"""Exporters' files are imported: results are ONNX Runtime's, within float rounding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.against_ort import both
from tests.frontends.onnx.exported import EXPORTED, build


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_graph_gives_the_results_of_onnxruntime(name: str) -> None:
    graph = build(name)
    ours, theirs = both(graph.model(), (), dict(graph.inputs))
    assert len(ours) == len(theirs) == len(graph.outputs)
    for y, wanted in zip(ours, theirs, strict=True):
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "f":  # sums of at most 60 products; of float16, rounded to it
            step = 2**-10 if name.startswith("float16") else 2**-17
            np.testing.assert_allclose(y, wanted, rtol=step, atol=step * np.abs(wanted).max())
        else:
            np.testing.assert_array_equal(y, wanted)
