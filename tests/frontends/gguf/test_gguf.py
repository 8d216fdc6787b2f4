"""GGUF files written by the `gguf` package, read by us."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from gguf.constants import GGUFEndian

from jq.base.errors import UserError
from jq.formats.tensor import QuantizedTensor
from jq.frontends.gguf import TensorRow, describe_gguf, load_gguf
from jq.frontends.gguf.types import TYPES

BLOCK_TYPES = [t for t in GGMLQuantizationType if t in TYPES and TYPES[t].format]


def write(path: Path, fill, **settings) -> Path:
    writer = GGUFWriter(path, "test", **settings)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random bytes in every block type, [3, 512] and stacked [2, 3, 256], and plain arrays."""
    rng = np.random.default_rng(0)

    def fill(writer: GGUFWriter) -> None:
        writer.add_custom_alignment(64)
        for kind in BLOCK_TYPES:
            block, size = GGML_QUANT_SIZES[kind]
            for shape in [(3, 512), (2, 3, 256)]:
                raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // block * size), np.uint8)
                writer.add_tensor(f"{kind.name}.{len(shape)}d.weight", raw, raw_dtype=kind)
        x = rng.standard_normal((5, 7), np.float32)
        writer.add_tensor("plain.f32", x)
        writer.add_tensor("plain.f16", x.astype(np.float16))
        writer.add_tensor("plain.i32", np.arange(6, dtype=np.int32))
        bf16 = quants.quantize(x, GGMLQuantizationType.BF16)
        writer.add_tensor("plain.bf16", bf16, raw_dtype=GGMLQuantizationType.BF16)

    return write(tmp_path_factory.mktemp("gguf") / "every.gguf", fill)


def test_types_are_those_of_gguf() -> None:
    assert {i: (t.name, t.block, t.bytes) for i, t in TYPES.items()} == {
        int(t): (t.name, *size) for t, size in GGML_QUANT_SIZES.items()
    }


def test_every_tensor_decodes_to_the_bits_of_gguf(every_type: Path) -> None:
    loaded = load_gguf(every_type)
    reader = GGUFReader(every_type)
    assert list(loaded.tensors) == [t.name for t in reader.tensors]
    for want in reader.tensors:
        got = loaded.tensors[want.name]
        assert got.shape == tuple(want.shape.tolist()[::-1]), want.name
        with np.errstate(all="ignore"):
            values = (
                quants.dequantize(np.asarray(want.data), want.tensor_type)
                if isinstance(got, QuantizedTensor) or want.name.endswith("bf16")
                else want.data
            )
        np.testing.assert_array_equal(np.asarray(got, values.dtype), values, err_msg=want.name)
        if isinstance(got, QuantizedTensor):
            assert got.dtype == np.float32
            assert got.name == want.name
            assert got.nbytes == want.n_bytes


def test_plain_types_keep_their_type_and_are_mapped(every_type: Path) -> None:
    tensors = load_gguf(every_type).tensors
    kinds = {n: t.dtype for n, t in tensors.items() if n.startswith("plain")}
    assert kinds == {
        "plain.f32": np.float32,
        "plain.f16": np.float16,
        "plain.i32": np.int32,
        "plain.bf16": ml_dtypes.bfloat16,
    }
    for tensor in tensors.values():
        stored = tensor.parts["blocks"] if isinstance(tensor, QuantizedTensor) else tensor
        assert not stored.flags.owndata
        assert not stored.flags.writeable


def test_params_are_nested_at_dots(every_type: Path) -> None:
    loaded = load_gguf(every_type)
    assert loaded.params["Q4_K"]["3d"]["weight"] is loaded.tensors["Q4_K.3d.weight"]


def test_names_that_are_no_tree(tmp_path: Path) -> None:
    x = np.zeros(4, np.float32)
    for names in (["a", "a.b"], ["a.b", "a"]):
        path = write(tmp_path / "x.gguf", lambda w, n=names: [w.add_tensor(m, x) for m in n])
        loaded = load_gguf(path)
        assert list(loaded.tensors) == names
        with pytest.raises(UserError, match=r"tree.*flat"):
            _ = loaded.params


def test_describe(every_type: Path) -> None:
    rows = describe_gguf(every_type)
    reader = GGUFReader(every_type)
    assert rows == [
        TensorRow(t.name, tuple(t.shape.tolist()[::-1]), t.tensor_type.name, t.n_bytes)
        for t in reader.tensors
    ]


def test_metadata_of_every_type(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        for bits in (8, 16, 32, 64):
            getattr(writer, f"add_uint{bits}")(f"u{bits}", (1 << bits) - 1)
            getattr(writer, f"add_int{bits}")(f"i{bits}", -(1 << (bits - 1)))
        writer.add_float32("f32", 0.1)
        writer.add_float64("f64", 0.1)
        writer.add_bool("yes", True)
        writer.add_string("text", "Grüße, 世界")
        writer.add_array("tokens", ["a", "", "é"])
        writer.add_array("ints", [1, -2, 3])
        writer.add_array("floats", [0.5, -1.5])
        writer.add_array("bools", [True, False])
        writer.add_array("bytes", b"\x01\xff")

    meta = load_gguf(write(tmp_path / "m.gguf", fill)).metadata
    for bits in (8, 16, 32, 64):
        assert meta[f"u{bits}"] == (1 << bits) - 1
        assert meta[f"i{bits}"] == -(1 << (bits - 1))
    assert meta["f32"] == np.float32(0.1)
    assert meta["f64"] == 0.1
    assert meta["yes"] is True
    assert meta["text"] == "Grüße, 世界"
    assert meta["tokens"] == ["a", "", "é"]
    assert meta["general.architecture"] == "test"
    for name, want in {"ints": [1, -2, 3], "floats": [0.5, -1.5], "bytes": [1, 255]}.items():
        np.testing.assert_array_equal(meta[name], want)
    np.testing.assert_array_equal(meta["bools"], [True, False])
    assert meta["bools"].dtype == np.bool_


def test_big_endian_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "b.gguf", lambda w: None, endianess=GGUFEndian.BIG)
    with pytest.raises(UserError, match="big endian"):
        load_gguf(path)


def test_a_type_without_a_decoder_is_listed_and_refused_by_name(tmp_path: Path) -> None:
    raw = np.zeros((2, 292), np.uint8)
    kind = GGMLQuantizationType.Q8_K
    path = write(tmp_path / "i.gguf", lambda w: w.add_tensor("w", raw, raw_dtype=kind))
    assert describe_gguf(path) == [TensorRow("w", (2, 256), "Q8_K", 584)]
    with pytest.raises(UserError, match="'w' has ggml type Q8_K"):
        load_gguf(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_gguf(tmp_path / "none.gguf")
    with pytest.raises(UserError, match="not a file but a folder"):
        load_gguf(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(UserError, match="needs 24 bytes, 0 are left"):
        load_gguf(tmp_path / "empty.gguf")
