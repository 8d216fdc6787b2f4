"""A folder of Hugging Face, quantized shard by shard, holds what NumPy rounds to."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jq.base.errors import UserError
from jq.frontends.safetensors import read_file
from jq.language import checkpoint
from jq.language.checkpoint import BEGUN, quantize_folder
from jq.language.decoder import load_decoder
from tests.support.decoders import write_folder

MODULE = "model.layers.1.mlp.down_proj"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two shards of bfloat16."""
    folder = tmp_path / "source"
    write_folder("llama", folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, where = list(tensors), {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i + 1}-of-2.safetensors"
        save_file({n: tensors[n].astype(ml_dtypes.bfloat16) for n in part}, folder / file)
        where |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def rounded(weight: np.ndarray, bits: int, group: int) -> np.ndarray:
    """By the definition: scales of bfloat16, codes to half of the range on both sides."""
    blocks = weight.astype(np.float32).reshape(len(weight), -1, group or weight.shape[1])
    half = 1 << (bits - 1)
    absmax = np.abs(blocks).max(-1, keepdims=True)
    scale = (absmax / np.float32(half - 0.5)).astype(ml_dtypes.bfloat16).astype(np.float32)
    codes = np.clip(np.rint(blocks / scale), -half, half - 1)
    return (codes * scale).reshape(weight.shape)


def file_tensors(folder: Path) -> list[str]:
    return [n for path in folder.glob("*.safetensors") for n in load_file(path)]


@pytest.mark.parametrize(("kind", "group"), [("int4", 32), ("int4", 0), ("int8", 16)])
def test_codes_and_scales(
    source: Path, tmp_path: Path, kind: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "PIECE", 1 << 9)  # some rows at a time
    found = quantize_folder(source, tmp_path / "out", kind, group)
    assert found.bytes < found.source_bytes and found.quantized == 2 * 7 and not found.resumed
    decoder = load_decoder(tmp_path / "out")
    weight = load_decoder(source).params["layers"]["1"]["mlp"]["down"]["weight"]
    stored = decoder.params["layers"]["1"]["mlp"]["down"]["weight"]
    want = rounded(np.asarray(weight), int(kind[3:]), group)
    assert stored.encoding.format == kind.replace("int", "uint")
    assert np.array_equal(np.asarray(stored.decode(), np.float32), want)
    assert not any("embed_tokens.weight_" in n for n in file_tensors(tmp_path / "out"))


@pytest.mark.parametrize("case", ["granite-experts", "qwen2-experts", "qwen3-next", "llama4"])
def test_routers_stay(tmp_path: Path, case: str) -> None:
    """A token that goes to other experts loses more than a matrix saves."""
    quantize_folder(write_folder(case, tmp_path / "in"), tmp_path / "out", "int8", 0)
    names = file_tensors(tmp_path / "out")
    routers = [n for n in names if "router" in n or ".gate." in n or "shared_expert_gate" in n]
    assert routers and not any(n.endswith("_packed") for n in routers)


def test_a_run_that_was_ended_goes_on(source: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"

    def ended(stage: str, share: float | None) -> None:
        if (share or 0) > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_folder(source, out, progress=ended)
    assert [p.name for p in out.glob("*.safetensors")] == ["model-1-of-2.safetensors"]
    assert (out / BEGUN).exists() and not (out / "config.json").exists()
    with pytest.raises(UserError, match="no run with these options"):
        quantize_folder(source, out, "int8")
    assert quantize_folder(source, out).resumed == 1
    quantize_folder(source, other)
    for path in other.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name
    with pytest.raises(UserError, match="quantized already"):
        quantize_folder(out, tmp_path / "twice")
    with pytest.raises(UserError, match="not empty"):
        quantize_folder(source, out)


def test_what_cannot_be(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown type"):
        quantize_folder(source, tmp_path / "out", "q4_k")
    with pytest.raises(UserError, match="words of 32 bits"):
        quantize_folder(source, tmp_path / "out", "int4", 12)
    assert not (tmp_path / "out").exists()


def test_memory_of_a_file_is_given_back(source: Path) -> None:
    array = next(iter(read_file(source / "model-1-of-2.safetensors").values()))
    before = array.copy()
    checkpoint.forget(array)
    checkpoint.forget(before)  # of no file: nothing to do
    assert np.array_equal(array, before) and hasattr(mmap, "MADV_DONTNEED")


def header_of(entries: dict[str, list[int]], size: int) -> bytes:
    """A file of one row of float32 for each name, at these places."""
    told = {n: {"dtype": "F32", "shape": [1], "data_offsets": at} for n, at in entries.items()}
    header = json.dumps(told).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header_of({"a": [0, 4], "b": [4, 8]}, 8), "no matrix in it can be rounded"),
        (header_of({"a": [0, 4], "b": [0, 4]}, 8), "tensors 'a' and 'b' overlap"),
        (header_of({"a": [4, 8], "b": [2, 6]}, 8), "tensors 'b' and 'a' overlap"),
        (b"\xff" * 16, "a header of .* bytes does not fit"),
    ],
)
def test_nothing_is_begun_of_what_cannot_be_read(
    content: bytes, message: str, source: Path, tmp_path: Path
) -> None:
    for path in source.glob("*.safetensors*"):
        path.unlink()
    (source / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=message):
        quantize_folder(source, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_templates_of_chats_come_along(source: Path, tmp_path: Path) -> None:
    for name in ("chat_template.jinja", "additional_chat_templates/rag.jinja"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(name)
        quantize_folder(source, tmp_path / Path(name).stem)
        assert (tmp_path / Path(name).stem / name).read_text() == name
