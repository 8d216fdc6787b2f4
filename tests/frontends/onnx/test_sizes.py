"""One artifact of several sizes, with calibrated ranges, of an ONNX file: calibrated at the first
size, and every size has its ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import jq
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.frontends.onnx.test_load import save

RNG = np.random.default_rng(11)
BATCHES = (1, 8)


def network(path: Path) -> Path:
    """A convolution, a pool, a reshape to a size that the graph computes, and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"], end=1),
        helper.make_node("Concat", ["s", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["p", "to"], ["f"]),
        helper.make_node("MatMul", ["f", "k"], ["y"]),
    ]
    sizes = {"w": (16, 3, 3, 3), "b": (16,), "k": (256, 10)}
    arrays = {k: (RNG.normal(size=s) / 8).astype(np.float32) for k, s in sizes.items()}
    ends = [("x", TensorProto.FLOAT, ["batch", 3, 8, 8])], [("y", TensorProto.FLOAT, ["batch", 10])]
    return save(path, nodes, *ends, arrays | {"rest": np.array([-1])})


def image(batch: int) -> np.ndarray:
    return RNG.normal(size=(batch, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("sizes") / "m.onnx")


def test_every_size_is_quantized_by_the_same_ranges(file: Path) -> None:
    """Rows of a batch do not know of each other, so each is what the size 1 computes of it."""
    model = jq.load_onnx(file, calibration=[(image(1),) for _ in range(8)])
    several = jq.compile(jq.trace(model, sizes={"batch": list(BATCHES)}), "int8-static")
    rows = image(8)
    found = np.asarray(several(rows)["y"])
    alone = [np.asarray(several(row[None])["y"]) for row in rows]
    np.testing.assert_array_equal(found, np.concatenate(alone))
    (wanted,) = by_onnxruntime(file, rows)
    # Codes of the input, of what the product reads and of both weights are each off by half a
    # step of 1/255 of a range at most; what a sum adds up is rounded in either direction.
    assert np.abs(found - wanted).max() <= 4 / 255 * np.abs(wanted).max()
    audit = several.audit()
    assert audit.verified
    assert [size["size"] for size in audit.to_dict()["sizes"]] == ["batch=1", "batch=8"]
    kinds = {(c["lhs"], c["rhs"]) for c in audit.to_dict()["contractions"]}
    assert kinds == {("i8", "i8")}


def test_channels_last_are_told_where_the_file_has_them_first(file: Path) -> None:
    with pytest.raises(jq.UserError, match=r"give np.moveaxis\(x, -1, 1\)"):
        jq.trace(jq.load_onnx(file, sizes={"x": (1, 8, 8, 3)}))
    with pytest.raises(jq.UserError) as told:
        jq.trace(jq.load_onnx(file, sizes={"x": (1, 4, 8, 8)}))
    assert told.value.hint is None
