"""The peers benchmark says whose sums saturated: a wrong answer is no contender."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)


def test_products_of_integers_are_exact(tmp_path: Path) -> None:
    """Codes whose pairs do not fit 16 bits, which products without VNNI saturate."""
    from peers.case import DYNAMIC, FLOAT, Contender
    from peers.exact import exact_program

    codes = np.full((3, 64), 255, np.uint8)
    weight = np.full((64, 5), 127, np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w", "x0", "w0"], ["y"])
    constants = {"w": weight, "x0": np.uint8(7), "w0": np.arange(5, dtype=np.int8)}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, codes.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (3, 5))],
        [numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)

    def contender(kind: str) -> Contender:
        return Contender("x", "onnxruntime", kind, "p", lambda source, folder: "", {})

    exact = exact_program(contender(DYNAMIC), path)
    assert exact is not None
    want = (codes.astype(np.int64) - 7) @ (weight.astype(np.int64) - np.arange(5))
    np.testing.assert_array_equal(exact([codes])[0], want)
    assert exact_program(contender(FLOAT), path) is None


def rows() -> list[dict]:
    def row(contender: str, ms: float, sqnr: float, ours: bool = False, **more: float) -> dict:
        same = {"case": "m", "family": "convolution", "threads": 1, "kind": "static"}
        times = {"median_ms": ms, "best_ms": ms}
        errors = {"sqnr_db": sqnr, "cosine": 1.0, "cosine_min": 1.0, **more}
        return {**same, "contender": contender, "ours": ours, **times, **errors}

    return [
        row("jaxq", 4.0, 6.4, ours=True),
        row("fast", 2.0, 6.2, exact_sqnr_db=6.9),
        row("wrong", 1.0, 2.2, exact_sqnr_db=6.4),
        row("right", 5.0, 6.3, exact_sqnr_db=6.3),
    ]


def test_who_saturated_is_shown_apart_and_not_ranked() -> None:
    from peers.report import compare, markdown

    found = rows()
    compare(found)
    assert (found[0]["peer"], found[0]["ratio"]) == ("right", 0.8)
    machine = {"cpu": {"model": "x"}, "instructions": "avx2", "versions": {}}
    text = markdown({"machine": machine, "rows": found, "skipped": {}})
    table, _, below = text.partition("Saturated, and not ranked:")
    assert "| right |" in table and "| wrong |" not in table and "| fast |" not in table
    assert below.split("\n")[2] == (
        "- wrong: 1.000 ms, 2.2 dB; the same program on exact integers: 6.4 dB"
    )
    assert "- fast: 2.000 ms" in below and "right" not in below
