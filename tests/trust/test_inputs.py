"""Inputs that would never end, or fill the memory, are refused before they are read."""

from __future__ import annotations

import io
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jq.artifact.parameters import read_index
from jq.base import npz
from jq.base.errors import UserError
from jq.frontends.gguf import load_gguf
from jq.frontends.tracing import load_model
from jq.frontends.tracing.entry import trace
from jq.ir import TensorSpec, context
from jq.passes.pipeline import load_pipeline
from jq.planning.calibration.ranges import Ranges
from jq.target.target import load_target

READERS: dict[str, Callable[[Path], object]] = {
    "in.npz": npz.read,
    "labels.npy": npz.read_array,
    "own.toml": lambda path: load_target(str(path)),
    "ranges.json": Ranges.load,
    "model.gguf": load_gguf,
    "model.mlir": lambda path: load_model(str(path)),
    "model.jaxexport": lambda path: load_model(str(path)),
    "weights.irpa": read_index,
    "weights.safetensors": read_index,
    "weights.gguf": read_index,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "nothing"])
def test_no_file(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(UserError, match="no such file|not a file but") as info:
        READERS[name](path)
    assert str(path) in str(info.value)


def spent(read: Callable[[], object], message: str) -> tuple[float, int]:
    """Seconds, and bytes at most, that a refusal takes."""
    start = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            read()
        return time.process_time() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def bomb(path: Path, shape: str, size: int) -> Path:
    """An array of zeros, a thousandth of its size on disk."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("arg0.npy", "w", force_zip64=True) as member,
    ):
        member.write(header(shape))
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return path


def test_a_bomb_of_the_wrong_shape(tmp_path: Path) -> None:
    path = bomb(tmp_path / "in.npz", "(67108864,)", 256 << 20)
    spec = TensorSpec("arg0", (4, 8), "float32")
    for reader in (npz.read_exact, npz.read_samples):
        seconds, memory = spent(lambda r=reader: r(path, [spec]), r"has shape \(67108864,\)")
        assert memory < 1 << 20 and seconds < 5


def test_a_bomb_of_the_right_shape(tmp_path: Path) -> None:
    path = bomb(tmp_path / "in.npz", f"({1 << 30}, 4, 8)", 1 << 20)
    spec = TensorSpec("arg0", (4, 8), "float32")
    _, memory = spent(lambda: npz.read_samples(path, [spec]), "claims 137438953472 bytes")
    assert memory < 1 << 20


def test_a_header_that_is_a_bomb(tmp_path: Path) -> None:
    """NumPy reads a header before it finds that it is too long."""
    size = 128 << 20
    with (
        zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("arg0.npy", "w") as member,
    ):
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", size))
        for _ in range(size >> 20):
            member.write(b" " * (1 << 20))
    _, memory = spent(lambda: npz.read(tmp_path / "in.npz"), f"array header, expected {size} bytes")
    assert memory < 4 << 20


ODD = {
    "negative": header("(-1,)"),
    "huge": header(f"({10**30},)"),
    "text": header("'abc'"),
    "bool": header("(True, 'a')"),
    "objects": header("(1,)", "'|O'") + b"cos\nsystem\n(S'touch PWNED'\ntR.",
    "deep": header("(" * 5000 + ")" * 5000),
    "over 64 bits": header(f"({1 << 31}, {1 << 31})"),
    "no size": header(f"({1 << 50},)", "'<U0'"),
    "no size, raw": header(f"({1 << 50},)", "'|V0'"),
    "no type": header("(1,)", "'<q99'"),
    "short": header("(4,)") + bytes(3),
    "long": header("(4,)") + bytes(17),
    "version 3": b"\x93NUMPY\x03\x00" + bytes(100),
    "version 9": b"\x93NUMPY\x09\x00" + bytes(100),
    "not even": b"PWNED",
    "empty": b"",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_arrays(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels.npy").write_bytes(ODD[name])
    with zipfile.ZipFile("in.npz", "w") as archive:
        archive.writestr("arg0.npy", ODD[name])
    for read, file in ((npz.read_array, "labels.npy"), (npz.read, "in.npz")):
        with pytest.raises(UserError, match="cannot read arrays") as info:
            read(Path(file))
        assert "allow_pickle" not in str(info.value) and "\n" not in str(info.value)
    assert not Path("PWNED").exists()


def test_odd_archives(tmp_path: Path) -> None:
    good = io.BytesIO()
    np.savez(good, arg0=np.zeros(4, np.float32))
    encrypted = bytearray(good.getvalue())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(magic) + offset] |= 1
    method = bytearray(good.getvalue())
    method[method.index(b"PK\x01\x02") + 10] = 99
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("arg0.npy", header("()") + bytes(4))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("arg0.npy", header("()") + bytes(4))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("arg0.txt", b"")
    bzip = io.BytesIO()  # a piece of it becomes as large as it likes
    with zipfile.ZipFile(bzip, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("arg0.npy", header("()") + bytes(4))
    made = [archive.getvalue() for archive in (twice, other, bzip)]
    for content in (encrypted, method, *made, b"PK", b""):
        (tmp_path / "in.npz").write_bytes(content)
        with pytest.raises(UserError, match="cannot read arrays"):
            npz.read(tmp_path / "in.npz")


def test_both_orders_of_axes(tmp_path: Path) -> None:
    want = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    np.savez(tmp_path / "in.npz", a=want, b=np.asfortranarray(want), c=np.float32(3), d=want[:0])
    got = npz.read(tmp_path / "in.npz")
    for name, expected in (("a", want), ("b", want), ("c", np.float32(3)), ("d", want[:0])):
        np.testing.assert_array_equal(got[name], expected)
    np.save(tmp_path / "a.npy", np.asfortranarray(want))
    np.testing.assert_array_equal(npz.read_array(tmp_path / "a.npy"), want)


DEEP = {
    "dotted": "a" + ".a" * 50_000 + " = 1",
    "dotted, in quotes": '"a"' + ' . "a"' * 50_000 + " = 1",
    "table": "[a" + ".a" * 50_000 + "]",
    "brackets": "flags = " + "[" * 50_000 + "]" * 50_000,
    "brackets with spaces": "flags = " + "[ " * 50_000 + "]" * 50_000,
    "braces": "flags = " + "{a=" * 50_000 + "1" + "}" * 50_000,
    "a number": "flags = 1" + "0" * 50_000,
    "not text": "\udcff",
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("load", [load_target, load_pipeline])
def test_deep_toml(name: str, load: Callable[[str], object], tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(DEEP[name] + "\n", errors="surrogateescape")
    assert spent(lambda: load(str(path)), "own")[0] < 5


def test_a_block_of_a_billion() -> None:
    with pytest.raises(UserError, match="block_size: it has to be less than or equal to 65536"):
        load_pipeline("int8-weight-only", {"weights.block_size": 1_000_000_007})


def test_calls_that_multiply(tmp_path: Path) -> None:
    path, kind = tmp_path / "calls.mlir", "tensor<4xf32>"
    text = "func.func public @f0(%x: T) -> T {"
    for i in range(25):
        text += f"""
          %0 = call @f{i + 1}(%x) : (T) -> T
          %1 = call @f{i + 1}(%0) : (T) -> T
          return %1 : T
        }}
        func.func private @f{i + 1}(%x: T) -> T {{"""
    path.write_text((text + "return %x : T }").replace("T", kind))
    context()  # which imports much
    assert spent(lambda: trace(path), "with its calls opened a function has")[0] < 5


def test_a_module_behind_a_link_of_another_name(tmp_path: Path) -> None:
    """Stores of files, as Nix and Bazel have, name them by digests."""
    (tmp_path / "0f3a").write_text("def model():\n    return 3\n")
    (tmp_path / "linked.py").symlink_to("0f3a")
    with pytest.raises(UserError, match="returned a int|not a"):
        load_model(f"{tmp_path}/linked.py:model")
