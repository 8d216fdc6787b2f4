"""AutoRound's weights in place of the float ones in an ONNX file, and the bytes that they take."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from peers import autoround
from peers.case import FEWER, Case, Skipped

CASE = Case("minilm", lambda: None, (), "transformer", frozenset({FEWER}))


class Source:
    """A product and its bias, and two calls of two sentences, which are padded."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.folder, self.onnx = folder, folder / "float.onnx"
        self.weight = rng.standard_normal((64, 8), np.float32)  # [in, out]
        w = numpy_helper.from_array(self.weight, "w")
        b = numpy_helper.from_array(np.ones(8, np.float32), "b")
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size])
            for name, size in (("x", 64), ("y", 8))
        )
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
        nodes += [helper.make_node("Add", ["h", "b"], ["y"])]
        self.table = rng.standard_normal((6, 64), np.float32)
        self.table[2] = 0  # a row that has no scale
        table = numpy_helper.from_array(self.table, "table")
        nodes += [helper.make_node("Gather", ["table", "i"], ["row"])]
        given = [x, helper.make_tensor_value_info("i", TensorProto.INT64, [None])]
        row = helper.make_tensor_value_info("row", TensorProto.FLOAT, [None, 64])
        graph = helper.make_graph(nodes, "g", given, [y, row], [w, b, table])
        onnx.save(helper.make_model(graph), self.onnx)
        ids = np.array([[1, 5, 2, 0], [1, 2, 0, 0]], np.int32)
        self.calibration = [[ids, (ids > 0).astype(np.int32)]] * 2


def test_weights_take_their_places(tmp_path, monkeypatch):
    source, folder, seen = Source(tmp_path), tmp_path / "program", []
    folder.mkdir()

    def run(command, check):
        _, worker, _, data, out, bits, group = command
        seen.append((Path(worker).name, bits, group, dict(np.load(data))))
        rounded = np.round(source.weight.T)
        np.savez(out, **{"layer.weight": rounded})
        np.savez(Path(out).with_suffix(".float.npz"), **{"layer.weight": source.weight.T})

    monkeypatch.setenv(autoround.PYTHON, "python")
    monkeypatch.setattr(autoround.subprocess, "run", run)
    monkeypatch.setattr(autoround.minilm, "folder", lambda: tmp_path)
    path = (folder / autoround.build(source, folder, 3)).resolve()
    ((worker, bits, group, data),) = seen
    assert (worker, bits, group) == ("autoround_worker.py", "3", "32")
    assert data["ids"].tolist() == [[1, 5, 2, 1], [2, 1, 5, 2]]  # nothing is padded
    assert data["mask"].min() == 1
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    assert np.array_equal(made["w"], np.round(source.weight))
    assert np.array_equal(made["b"], np.ones(8))
    step = np.abs(source.table).max(1, keepdims=True) / 127
    assert 0 < np.abs(made["table"] - source.table).max() <= step.max() * 0.501
    # Codes of 3 bits, for 32 of them a scale of 16 bits and a zero point; a float bias; and a byte
    # for each number of the table, with a scale for each row.
    sizes = [f.stat().st_size for f in folder.iterdir()]
    assert sizes == [64 * 8 * 3 // 8 + 16 * 19 // 8 + 8 * 4 + 6 * 64 + 6 * 4]


def test_it_needs_a_python_that_has_it(monkeypatch):
    monkeypatch.delenv(autoround.PYTHON, raising=False)
    with pytest.raises(Skipped, match="AUTOROUND_PYTHON"):
        autoround.contenders(CASE)
