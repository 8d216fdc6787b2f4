"""Folders of language models that others made: of Hugging Face, and of programs compiled ahead."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jq.base.errors import UserError
from jq.cli.app import main
from jq.frontends.safetensors import INDEX
from jq.language.decoder import load_decoder
from jq.language.saved import load as load_saved
from jq.language.store import MANIFEST, Options, described
from tests.support.decoders import write_folder, write_gguf

CASE = "llama-one-head-of-keys"
QUANTIZE = ("quantize", "model", "out", "--type", "int4")
GENERATE = ("generate", "model", "--prompt", "ab")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in two files, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return write_folder(CASE, tmp_path / "model", shards=2)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that refuses what it is given."""
    assert main([*arguments, "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxq: error: ") and len(line) < 2100
    return line


@pytest.mark.parametrize(
    "files",
    [
        *(None, [1], "x", {}, {"a": 1}, {"a": {"b": 1}}, {"a": 1, "b": "x"}, {"a": ["b"]}),
        *({"a": ".."}, {"a": "/etc/passwd"}, {"a": "../x"}, {"a": ""}, {"a": "x" * 5000}),
        {"zz": "model-0.safetensors"},
    ],
)
def test_an_index_that_lies(
    model: Path, files: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    index = json.loads((model / INDEX).read_text()) | {"weight_map": files}
    (model / INDEX).write_text(json.dumps(index))
    for command in (QUANTIZE, GENERATE):
        refused(capsys, *command)
    assert not (tmp_path / "out").exists()


def _link(name: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_link("../secret"), "a link out of the model's folder is not copied"),
        (_link("/dev/zero"), "not a file but a pipe, a device or a socket"),
        (_link("nowhere"), "no such file"),
        (os.mkfifo, "not a file but a pipe"),
    ],
)
def test_what_lies_beside_the_weights(
    model: Path,
    make: Callable[[Path], None],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("mine")
    make(model / "notes.txt")
    assert reason in refused(capsys, *QUANTIZE)
    assert not (tmp_path / "out").exists()


def test_links_within_a_cache_of_hugging_face(
    model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    snapshot = tmp_path / "models--a--b/snapshots/0"
    (tmp_path / "models--a--b/blobs").mkdir(parents=True)
    snapshot.parent.mkdir()
    model.rename(snapshot)
    (tmp_path / "models--a--b/blobs/1").write_text("{}")
    (snapshot / "tokenizer_config.json").symlink_to("../../blobs/1")
    (snapshot / "same.json").symlink_to("tokenizer_config.json")
    assert main(["quantize", str(snapshot), "out", "--type", "int4", "-q"]) == 0
    written = tmp_path / "out/tokenizer_config.json"
    assert written.read_text() == "{}" and not written.is_symlink()


def test_a_folder_to_go_on_in(
    model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    marker = tmp_path / "out/.jaxq-quantize.json"
    marker.parent.mkdir()
    marker.write_bytes(b"\xff")
    assert "no UTF-8 text" in refused(capsys, *QUANTIZE)
    for make in (os.mkfifo, _link("/dev/zero")):
        marker.unlink()
        make(marker)
        assert "not a file but a pipe" in refused(capsys, *QUANTIZE)
    marker.unlink()
    (tmp_path / "victim").write_text("mine")
    sizes = [(model / f"model-{i}.safetensors").stat().st_size for i in (0, 1)]
    files = [f"model-{i}.safetensors" for i in (0, 1)]
    marker.write_text(json.dumps({"bits": 4, "group": 32, "files": files, "sizes": sizes}))
    for name in ("config.json", INDEX):
        (tmp_path / "out" / name).symlink_to("../victim")
    assert main([*QUANTIZE, "-q"]) == 0
    assert (tmp_path / "victim").read_text() == "mine"


def test_texts_that_are_none(
    model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_gguf(CASE, tmp_path / "m.gguf")
    for command in (
        ("perplexity", "m.gguf", "/dev/zero", "--window", "16"),
        ("compare", "m.gguf", "--text", "/dev/zero"),
        ("quantize", "m.gguf", "o.gguf", "--type", "q4_0", "--importance", "/dev/zero"),
    ):
        assert "not a file but a pipe, a device" in refused(capsys, *command)


def test_seeds(model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_gguf(CASE, tmp_path / "m.gguf")
    line = refused(capsys, "generate", "m.gguf", "--prompt", "a", "--seed=-1")
    assert "the seed must be 0 or more" in line
    assert "pipeline" in refused(capsys, "generate", "m.gguf", "--prompt", "a", "--pipeline=")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The description of a model that was compiled ahead, without its programs."""
    decoder = load_decoder(write_gguf(CASE, tmp_path / "m.gguf"))
    parts = {"config": asdict(decoder.config), "options": asdict(Options()), "files": {}}
    document = {"version": 2, **parts}
    (tmp_path / MANIFEST).write_text(json.dumps(document))
    load_saved(tmp_path)
    return tmp_path / MANIFEST


@pytest.mark.parametrize("part", ["config", "options"])
def test_a_description_of_other_types(saved: Path, part: str) -> None:
    text = saved.read_text()
    for key, right in json.loads(text)[part].items():
        numbers = (1, 1.0) if isinstance(right, str | list) else ("x", [1])
        for value in (None, [["x"]], {"a": 1}, float("nan"), 10**400, *numbers):
            document = json.loads(text)
            document[part][key] = value
            saved.write_text(json.dumps(document))
            with pytest.raises(UserError, match="not the description of a language model"):
                load_saved(saved.parent)


def test_a_file_of_a_saved_model_may_be_larger_than_2_gib(saved: Path) -> None:
    """Weights of a few billion parameters are."""
    (saved.parent / "1x4.irpa").write_bytes(b"small")
    files = {"1x4.irpa": {"bytes": 3 << 30, "sha256": "0"}}
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"files": files}))
    with pytest.raises(UserError, match=f"damaged: 5 bytes instead of {3 << 30}"):
        load_saved(saved.parent)


PROGRAM = {"inputs": [[[1, 4], "int32"]], "outputs": [[[1], "float32"]], "cpu": ["x86_64", ["a"]]}
PROGRAM |= {"grows": []}


@pytest.mark.parametrize("key", list(PROGRAM))
def test_a_program_of_other_types(tmp_path: Path, key: str) -> None:
    path = tmp_path / "1x4.json"
    path.write_text(json.dumps(PROGRAM))
    assert json.loads(described(path).model_dump_json()) == PROGRAM
    for value in (
        None,
        1,
        "x",
        [1],
        [[1]],
        [{}],
        {"a": 1},
        ["x", [{}]],
        [1, ["a"]],
        [[[-1], "i8"]],
    ):
        path.write_text(json.dumps(PROGRAM | {key: value}))
        with pytest.raises(UserError, match="not the description of a language model's program"):
            described(path)
    path.write_text(json.dumps({k: v for k, v in PROGRAM.items() if k != key}))
    with pytest.raises(UserError, match="not the description"):
        described(path)
