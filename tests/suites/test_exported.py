"""The suite `exports`: drawn networks in every form, by the form's own reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jq

for reference in ("tosa_reference_model", "ai_edge_litert", "onnxruntime"):
    pytest.importorskip(reference, reason=f"{reference} is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")


@pytest.mark.parametrize("seed", [0, 8, 1003, 1007, 5128])
def test_bits_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1003: a sum of two that is also a multiple. 1007: a comparison for inequality.
    5128: a choice that is joined, whose scale is not its condition's."""
    from suites.exported import FORMS, Interpreted, outcomes

    monkeypatch.setattr("jq.device.forms.verifying.XlaExecutable", Interpreted)
    found = list(outcomes(seed))
    assert [(o.suffix, o.target, o.codes) for o in found] == list(FORMS)
    assert not [o for o in found if o.wrong]
    assert not [o for o in found if o.refused]


def test_whole_networks_are_written_in_every_form_of_8_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from checks import exports

    seen = list[tuple[str, str]]()

    def written(model: object, path: Path, target: str, *, verify: bool) -> Iterator[Any]:
        assert verify
        seen.append((path.suffix, target))
        yield "", True

    monkeypatch.setattr(exports, "written", written)
    found = list(exports.reports(jq.Model(lambda p, x: x, {}, ()), [".tflite", ".onnx"], []))
    assert len(found) == 3
    assert seen == [(".tflite", "litert-reference"), (".tflite", "litert"), (".onnx", "onnx-qdq")]
