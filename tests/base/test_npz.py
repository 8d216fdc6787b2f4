"""Reading inputs from `.npz` files: what is taken and what is refused, in one line each."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jq.base import npz
from jq.base.errors import UserError
from jq.ir import TensorSpec

IDS = TensorSpec("ids", (1, 4), "int32")
MASK = TensorSpec("mask", (4,), "float32")
SPECS = (IDS, MASK)


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "in.npz", **arrays)
    return folder / "in.npz"


def ids(*lead: int) -> np.ndarray:
    return np.arange(np.prod((*lead, 4)), dtype=np.int32).reshape(*lead, 4)


def test_by_name_and_by_position(tmp_path: Path) -> None:
    mask = np.ones(4, np.float32)
    for arrays in ({"mask": mask, "ids": ids(1)}, {"arg1": mask, "arg0": ids(1)}):
        first, second = npz.read_exact(saved(tmp_path, **arrays), SPECS)
        np.testing.assert_array_equal(first, ids(1))
        np.testing.assert_array_equal(second, mask)


def test_one_more_axis_is_the_sample(tmp_path: Path) -> None:
    masks = np.random.default_rng(0).random((3, 4), np.float32)
    samples = npz.read_samples(saved(tmp_path, ids=ids(3, 1), mask=masks), SPECS)
    assert len(samples) == 3
    for index, (first, second) in enumerate(samples):
        np.testing.assert_array_equal(first, ids(3, 1)[index])
        np.testing.assert_array_equal(second, masks[index])


def test_exact_shapes_are_one_sample(tmp_path: Path) -> None:
    path = saved(tmp_path, ids=ids(1), mask=np.ones(4, np.float32))
    assert [[a.shape for a in sample] for sample in npz.read_samples(path, SPECS)] == [
        [(1, 4), (4,)]
    ]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": ids(1)}, r"no array 'mask' \(or arg1\).*in.npz.*the file holds ids"),
        ({"ids": ids(2), "mask": np.ones(4, np.float32)}, r"'ids' has shape \(2, 4\)"),
        ({"ids": ids(2, 1), "mask": np.ones(4, np.float32)}, r"'ids' has shape \(2, 1, 4\)"),
        ({"ids": ids(1), "mask": np.ones(4)}, r"'mask' is float64.*astype\('float32'\)"),
        (
            {"ids": ids(1), "mask": np.ones(4, np.float32), "b": ids(1)},
            "has no input 'b'.*its inputs are ids, mask",
        ),
        ({"ids": np.array([{}], dtype=object), "mask": ids(1)}, "Python objects"),
    ],
)
def test_wrong_inputs_of_a_run(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        npz.read_exact(saved(tmp_path, **arrays), SPECS)


@pytest.mark.parametrize(
    ("ids_shape", "mask_shape", "message"),
    [
        ((3, 1), (2, 4), r"differ in their number of samples \(ids: 3, mask: 2\)"),
        ((3, 1), (4,), r"\(ids: 3, mask: no sample axis\)"),
        ((0, 1), (0, 4), r"has shape \(0, 1, 4\)"),
        ((2, 3, 1), (4,), r"has shape \(2, 3, 1, 4\)"),
    ],
)
def test_wrong_samples(
    tmp_path: Path, ids_shape: tuple[int, ...], mask_shape: tuple[int, ...], message: str
) -> None:
    path = saved(tmp_path, ids=ids(*ids_shape), mask=np.ones(mask_shape, np.float32))
    with pytest.raises(UserError, match=message):
        npz.read_samples(path, SPECS)


def test_damaged_files(tmp_path: Path) -> None:
    path = saved(tmp_path, ids=ids(1), mask=np.ones(4, np.float32))
    whole = path.read_bytes()
    for damaged in (
        b"",
        b"no zip",
        whole[:100],
        whole[:-30],
        whole.replace(b"\x93NUMPY", b"xxxxxx"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"in\.npz"):
            npz.read_exact(path, SPECS)
    with pytest.raises(UserError, match="no such file"):
        npz.read(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", ids(1))
    with pytest.raises(UserError, match=r"one\.npy"):
        npz.read(tmp_path / "one.npy")


def test_bf16_goes_in_and_comes_out_as_float32(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    spec = TensorSpec("x", (2,), "bfloat16")
    (read,) = npz.read_exact(saved(tmp_path, x=values), [spec])
    assert read.dtype == ml_dtypes.bfloat16
    npz.write(tmp_path / "out.npz", {"x": read})
    back = npz.read(tmp_path / "out.npz")["x"]
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, [1.5, -2.0])


def test_outputs_may_have_any_name(tmp_path: Path) -> None:
    names = ("file", "allow_pickle", "out put/1", "arg0/\u00fc:0", "self")
    npz.write(tmp_path / "out.npz", {n: np.full(2, i) for i, n in enumerate(names)})
    with np.load(tmp_path / "out.npz") as found:
        assert {n: found[n][0] for n in found.files} == {n: i for i, n in enumerate(names)}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_array_is_in_memory_once(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "in.npz", a=np.arange(1 << 22, dtype=np.int64))
    tracemalloc.start()
    try:
        found = npz.read(tmp_path / "in.npz")["a"]
        assert tracemalloc.get_traced_memory()[1] < 1.25 * found.nbytes
    finally:
        tracemalloc.stop()
    assert found[-1] == (1 << 22) - 1
