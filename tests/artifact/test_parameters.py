from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from iree import runtime as rt

from jq.artifact.parameters import Parameter, check_parameters, read_index, write_parameters
from jq.base.errors import UserError
from jq.base.system.files import sha256
from jq.formats.tensor import Deferred

RNG = np.random.default_rng(4)
ARRAYS = {
    "layer/kernel:codes": RNG.integers(-128, 128, (33, 7)).astype(np.int8),
    "layer/kernel:scale": RNG.random((1, 7)).astype(np.float32),
    "é": RNG.random(3).astype(ml_dtypes.bfloat16),
    "scalar": np.array(3.5, np.float16),
    "strided": np.arange(12, dtype=np.int32).reshape(3, 4).T,
    "truth": RNG.random(5) > 0.5,
    "byte": RNG.integers(0, 256, 3).astype(np.uint8),
    "float8": RNG.random((3, 3)).astype(ml_dtypes.float8_e5m2),
    "none": np.zeros((0, 4), np.float64),
}


@pytest.fixture(params=[".irpa", ".safetensors"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"weights{request.param}"
    write_parameters(file, ARRAYS)
    return file


def test_iree_reads_what_we_write(path: Path) -> None:
    index = rt.ParameterIndex()
    index.load(str(path))
    found = dict(index.items())
    assert set(found) == set(ARRAYS)
    for key, array in ARRAYS.items():
        assert bytes(found[key].file_view) == array.tobytes(), key


def test_data_is_aligned(tmp_path: Path) -> None:
    file = tmp_path / "w.irpa"
    write_parameters(file, ARRAYS)
    index = rt.ParameterIndex()
    index.load(str(file))
    assert all(entry.file_storage[1] % 64 == 0 for _, entry in index.items())


def test_same_bytes_as_the_writer_of_iree(tmp_path: Path) -> None:
    """IREE's own writer pads the file further; everything before that is equal."""
    ours, theirs = tmp_path / "ours.irpa", tmp_path / "theirs.irpa"
    write_parameters(ours, {"a": ARRAYS["layer/kernel:codes"], "bc": ARRAYS["scalar"]})
    index, read = rt.ParameterIndex(), rt.ParameterIndex()
    read.load(str(ours))
    for key, entry in read.items():
        index.add_buffer(key, bytes(entry.file_view), metadata=bytes(entry.metadata).decode())
    index.create_archive_file(str(theirs))
    data, want = bytearray(ours.read_bytes()), bytearray(theirs.read_bytes())
    data[0x50:0x58] = want[0x50:0x58] = bytes(8)  # length of the padding after the last tensor
    assert data == want[: len(data)]
    assert not any(want[len(data) :])


def test_check(path: Path) -> None:
    expected = {key: Parameter.of(array) for key, array in ARRAYS.items()}
    check_parameters(path, expected)
    with pytest.raises(UserError, match="lacks the parameter 'other'"):
        check_parameters(path, {**expected, "other": Parameter("int8", (1,))})
    with pytest.raises(UserError, match="'scalar' is .*not float32"):
        check_parameters(path, {**expected, "scalar": Parameter("float32", ())})


def test_check_of_types_with_equal_size(tmp_path: Path) -> None:
    file = tmp_path / "w.irpa"
    write_parameters(file, {"w": np.zeros((4, 6), np.int8)})
    for wrong in (Parameter("int8", (6, 4)), Parameter("uint8", (4, 6))):
        with pytest.raises(UserError, match=r"'w' is int8\[4, 6\], not"):
            check_parameters(file, {"w": wrong})


def test_damaged_files_are_one_line(path: Path) -> None:
    whole = path.read_bytes()
    for damaged in (b"", b"\0" * 100, whole[:10], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="cannot read parameters") as caught:
            read_index(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", [32, 40, 48, 56, 64, 72, 80, 96, 116, 124, 132, 140, 156, 164])
def test_parts_that_wrap(place: int, tmp_path: Path) -> None:
    """Begins and lengths of segments, names and data, and the number of entries.

    IREE adds them in 64 bits."""
    path = tmp_path / "w.irpa"
    write_parameters(path, {"a": np.arange(6.0)})
    data = bytearray(path.read_bytes())
    data[place : place + 8] = b"\xf0" + b"\xff" * 7
    path.write_bytes(data)
    with pytest.raises(UserError, match="outside of the file"):
        read_index(path)


def test_full_disk_is_an_error(tmp_path: Path) -> None:
    """A limit on the size of a file stands in for a full disk."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from jq.artifact.parameters import write_parameters
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_parameters(Path(sys.argv[1]), {"w": np.ones(10000)})
        except OSError as error:
            print("OSError")
    """)
    for name in ("w.irpa", "w.safetensors"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == "OSError\n"


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    file = tmp_path / "w.safetensors"
    write_parameters(file, ARRAYS)
    with safetensors.safe_open(file, "numpy") as opened:
        assert set(opened.keys()) == set(ARRAYS)
    for key, content in safetensors.deserialize(file.read_bytes()):
        assert bytes(content["data"]) == ARRAYS[key].tobytes()
        assert tuple(content["shape"]) == ARRAYS[key].shape


def test_every_tensor_begins_at_a_multiple_of_its_element(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write_parameters(file, ARRAYS)
    index = rt.ParameterIndex()
    index.load(str(file))
    for key, entry in index.items():
        assert entry.file_storage[1] % ARRAYS[key].dtype.itemsize == 0, key


def test_a_type_that_safetensors_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no complex128"):
        write_parameters(tmp_path / "w.safetensors", {"c": np.zeros(3, np.complex128)})


@pytest.mark.parametrize("suffix", [".irpa", ".safetensors"])
def test_deferred_arrays_are_made_piece_by_piece(tmp_path: Path, suffix: str) -> None:
    made: list[str] = []

    def make(name: str) -> Deferred:
        def pieces() -> Iterator[np.ndarray]:
            for _ in range(3):
                made.append(name)
                yield np.full(5, ord(name), np.int8)

        return Deferred((3, 5), np.dtype(np.int8), pieces)

    file = tmp_path / f"w{suffix}"
    write_parameters(file, {name: make(name) for name in "ab"})
    assert made == [*"aaabbb"]
    index = rt.ParameterIndex()
    index.load(str(file))
    assert {k: bytes(e.file_view) for k, e in index.items()} == {"a": b"a" * 15, "b": b"b" * 15}


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.irpa, \.safetensors"):
        write_parameters(tmp_path / "w.bin", {})


def test_empty(tmp_path: Path) -> None:
    file = tmp_path / "w.irpa"
    write_parameters(file, {})
    assert read_index(file) == {}


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(tmp_path / "f") == known
