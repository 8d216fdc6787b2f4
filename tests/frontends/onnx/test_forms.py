"""Every form of quantization in ONNX files: integers are those of ONNX Runtime, to the bit.

ONNX Runtime without graph optimization is the oracle, of an artifact that computes all forms.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import jq
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.frontends.onnx.forms import FORMS, build_all


@cache
def computed() -> tuple[dict[str, list[tuple[np.ndarray, np.ndarray]]], jq.CompiledModel]:
    """Pairs of our results and theirs for each form; and the artifact."""
    form, names = build_all()
    with TemporaryDirectory() as folder:
        path = form.save(Path(folder) / "forms.onnx")
        theirs = by_onnxruntime(path, *form.inputs.values())
        compiled = jq.compile(jq.load_onnx(path), pipeline="float")
    ours = compiled(*form.inputs.values())
    pairs = {y: (np.asarray(ours[y]), their) for y, their in zip(form.outputs, theirs, strict=True)}
    return {name: [pairs[y] for y in group] for name, group in names.items()}, compiled


@pytest.mark.parametrize("name", FORMS)
def test_integers_are_those_of_onnxruntime(name: str) -> None:
    for ours, theirs in computed()[0][name]:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype == np.float32:  # sums of 64 products: in another order
            bound = 64 * np.finfo(np.float32).eps
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound * np.abs(theirs).max())
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_convolutions_have_kernels_whatever_their_zero_points() -> None:
    ops = [op for op in computed()[1].manifest.ops if op["op"] == "convolution" and op["weights"]]
    assert any("asymmetric" in op["weights"] for op in ops)
    assert all(op["kernel"] for op in ops)


def test_the_artifact_is_what_it_says() -> None:
    """Unsigned inputs and outputs, and weights of a few bytes, included."""
    assert computed()[1].audit().verified
