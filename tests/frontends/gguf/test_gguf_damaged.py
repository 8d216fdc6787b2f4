"""Headers that lie: refused with a reason, quickly, and before anything large is allocated."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from jq.base.errors import UserError
from jq.frontends.gguf import load_gguf
from jq.frontends.gguf.header import read_header

U64_MAX = (1 << 64) - 1


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str = "w", dims=(32, 2), kind: int = 0, offset: int = 0) -> bytes:
    fixed = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
    return text(name) + fixed


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def file(tensors=(), keys=(), *, version=3, counts=None, data=b"\0" * 4096) -> bytes:
    """A file from its pieces; `counts` are the numbers of tensors and keys it claims."""
    claimed = counts or (len(tensors), len(keys))
    header = struct.pack("<4sIQQ", b"GGUF", version, *claimed) + b"".join([*keys, *tensors])
    return header + b"\0" * (-len(header) % 32) + data


U32 = 4
LIES = {
    "magic": (b"GGML" + file()[4:], "'GGUF'"),
    "version 1": (file(version=1), "version 1"),
    "version 4": (file(version=4), "version 4"),
    "version 0": (file(version=0), "version 0"),
    "big endian": (file(version=3 << 24), "big endian"),
    "tensor count": (file(counts=(U64_MAX, 0)), "tensors needs"),
    "metadata count": (file(counts=(0, U64_MAX)), "keys needs"),
    "key length": (file(keys=[struct.pack("<Q", U64_MAX)]), "a metadata key needs"),
    "key twice": (file(keys=[key("a", 4, b"1234")] * 2), "'a' occurs twice"),
    "key not UTF-8": (file(keys=[struct.pack("<Q", 2) + b"\xff\xfe" + b"\0" * 12]), "not UTF-8"),
    "value type": (file(keys=[key("a", 13, b"1234")]), "unknown value type 13"),
    "string length": (file(keys=[key("a", 8, struct.pack("<Q", 1 << 40))]), "needs 10995"),
    "array length": (file(keys=[key("a", 9, struct.pack("<IQ", 6, 1 << 62))]), "needs 18446"),
    "array of strings": (file(keys=[key("a", 9, struct.pack("<IQ", 8, 1 << 62))]), "needs"),
    "array of arrays": (file(keys=[key("a", 9, struct.pack("<IQ", 9, 1 << 62))]), "needs"),
    "array type": (file(keys=[key("a", 9, struct.pack("<IQ", 77, 1))]), "element type 77"),
    "array depth": (file(keys=[key("a", 9, struct.pack("<IQ", 9, 1) * 90)]), "deep"),
    "alignment 0": (file(keys=[key("general.alignment", 4, b"\0" * 4)]), "power of two"),
    "alignment 48": (file(keys=[key("general.alignment", 4, b"\x30\0\0\0")]), "power of two"),
    "alignment text": (file(keys=[key("general.alignment", 8, text("32"))]), "power of two"),
    "name length": (file([struct.pack("<Q", 1 << 50) + b"\0" * 32]), "a tensor name needs"),
    "name twice": (file([tensor(), tensor()]), "'w' occurs twice"),
    "rank": (file([tensor(dims=(1,) * 5)]), "5 dimensions"),
    "rank huge": (file([text("w") + struct.pack("<I", 0xFFFFFFFF)]), "4294967295 dimensions"),
    "dimension 0": (file([tensor(dims=(32, 0))]), "dimension of 0"),
    "product overflows": (file([tensor(dims=(1 << 32, 1 << 32))]), "bytes ends at"),
    "product wraps to 32": (file([tensor(dims=((1 << 63) + 16, 2))]), "bytes ends at"),
    "type 4": (file([tensor(kind=4)]), "unknown type 4"),
    "type 999": (file([tensor(kind=999)]), "unknown type 999"),
    "row": (file([tensor(dims=(48, 2), kind=8)]), "no multiple of Q8_0's 32"),
    "scalar block": (file([tensor(dims=(), kind=8)]), "no multiple"),
    "offset": (file([tensor(offset=1 << 63)]), "bytes ends at"),
    "offset unaligned": (file([tensor(offset=8)]), "not aligned to 32"),
    "overlap": (file([tensor("a"), tensor("b", offset=32)]), "'b' overlaps tensor 'a'"),
    "data missing": (file([tensor()], data=b"\0" * 255), "256 bytes ends at"),
    "header cut": (file([tensor()], data=b"")[:60], "needs"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_with_offset_and_reason(lie: str, tmp_path: Path) -> None:
    content, reason = LIES[lie]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=reason) as caught:
            load_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert f"{path}, byte " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert peak < 1 << 20


def test_the_pieces_make_a_valid_file() -> None:
    nested = struct.pack("<IQ", 9, 2) + (struct.pack("<IQ", 4, 1) + b"\x07\0\0\0") * 2
    content = file([tensor("a"), tensor("b", (), 0, 256)], [key("k", 9, nested)], version=2)
    header = read_header(content, "memory")
    assert header.version == 2
    assert header.metadata["k"] == [[7], [7]]
    assert [t.shape for t in header.tensors.values()] == [(2, 32), ()]


def test_many_items_are_refused_before_they_are_made() -> None:
    """A sparse file may really have room for 2^23 empty strings."""
    content = file(keys=[key("a", 9, struct.pack("<IQ", 8, 1 << 23))], data=bytes(1 << 26))
    with pytest.raises(UserError, match="header entries"):
        read_header(content, "memory")


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "v.gguf"
    writer = GGUFWriter(path, "test")
    writer.add_array("tokens", ["a", "bc"])
    writer.add_array("ids", [1, 2, 3])
    writer.add_float32("eps", 1e-5)
    q8 = np.zeros((2, 68), np.uint8)
    writer.add_tensor("blk.0.weight", q8, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("norm", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


EDITS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.integers(0, U64_MAX).map(lambda n: struct.pack("<Q", n)),
            st.sampled_from([b"\xff" * 8, b"\xff" * 4, b"\0" * 8, b"\0\0\0\x80", b"\x7f"]),
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(edits=EDITS, length=st.one_of(st.none(), st.integers(0, 600)))
@settings(max_examples=400, deadline=1000)
def test_overwritten_bytes(
    valid: bytes, edits: list[tuple[int, bytes]], length: int | None
) -> None:
    """Only a refusal or a result that lies inside the file comes out."""
    content = bytearray(valid)
    for start, patch in edits:
        start = min(start, len(content) - len(patch))
        content[start : start + len(patch)] = patch
    data = bytes(content[:length])
    try:
        header = read_header(data, "memory")
    except UserError:
        return
    for info in header.tensors.values():
        assert info.offset >= 0
        assert info.offset + info.nbytes <= len(data)
