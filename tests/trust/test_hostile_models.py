"""Language models whose files say what no model is: types, numbers and texts out of all bounds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.frontends.safetensors import read_file, write_model
from jq.language.decoder import load_decoder
from jq.language.decoder.rope import Rope
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.perplexity import measure
from jq.language.quantize import pieces_of
from jq.language.tokenizer import Tokenizer, tokenizer_of_gguf
from jq.language.vocabularies import NORMAL, SentencePiece
from tests.support import decoders
from tests.support.decoders import write_folder, write_gguf


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("llama.attention.head_count", [float("nan")] * 2, "not one whole number"),
        ("llama.attention.head_count", [float("inf")] * 2, "not one whole number"),
        ("llama.attention.head_count", ["4", "4"], "head_count is"),
        ("split.count", [1, 2], "one of array"),
        ("split.count", "x", "one of 'x' parts"),
        ("llama.rope.scaling.attn_factor", float("nan"), "attn_factor is nan"),
    ],
)
def test_metadata_of_other_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, reason: str
) -> None:
    def metadata(writer: Any, *given: Any, plain: Any = decoders._metadata) -> None:
        plain(writer, *given)
        writer.kv_data[0].pop(key, None)
        add = {list: writer.add_array, str: writer.add_string, float: writer.add_float32}
        add[type(value)](key, value)

    monkeypatch.setattr(decoders, "_metadata", metadata)
    with pytest.raises(UserError, match=reason):
        load_decoder(write_gguf("llama", tmp_path / "m.gguf"))


LONG = {"rope_type": "longrope", "rope_theta": 10.0, "long_factor": [1.0] * 8}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"original_max_position_embeddings": 1, "short_factor": [1.0] * 8}, "context of 1"),
        ({"original_max_position_embeddings": 8, "short_factor": [0.0] * 8}, "not finite"),
        ({"original_max_position_embeddings": 8, "short_factor": [float("nan")] * 8}, "not finite"),
    ],
)
def test_rotary_positions_that_are_no_numbers(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    folder = write_folder("llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"rope_parameters": LONG | change}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=reason):
        load_decoder(folder)
    with pytest.raises(UserError, match="not finite"):
        Rope((1.0,), float("inf"))


def test_more_experts_than_tensors(tmp_path: Path) -> None:
    """All of their names would be made first, for minutes."""
    folder = write_folder("mixtral", tmp_path / "model")
    path = folder / "config.json"
    for change in ({"num_local_experts": 2**31 - 1}, {"num_hidden_layers": 4096}):
        path.write_text(json.dumps(decoders.CASES["mixtral"]["config"] | change))
        with pytest.raises(UserError, match="experts are not in .* tensors"):
            load_decoder(folder)


ENTRY = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'


@pytest.mark.parametrize(
    ("header", "said"),
    [
        *((ENTRY.replace('"F32"', kind), "the entry") for kind in ('["F32"]', "{}", "null", "1")),
        (ENTRY.replace("[1]", f"{[1] * 65}"), "'a' has 65 axes, 64 at most"),
        (f'{ENTRY}, "a": {ENTRY.replace("F32", "I32")}', "'a' occurs twice"),
        (ENTRY.replace("{", '{"dtype": "I32", '), "'dtype' occurs twice"),
    ],
)
def test_entries_of_tensors(tmp_path: Path, header: str, said: str) -> None:
    """Types that are no names, more axes than NumPy has, and names that are there twice."""
    path = tmp_path / "a.safetensors"
    text = f'{{"a": {header}}}'.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(UserError, match=said):
        read_file(path)


def test_complex_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_model(path, {"a": np.array([1 + 2j], np.complex64)})
    np.testing.assert_array_equal(read_file(path)["a"], [1 + 2j])


class _Letters:
    """As many tokens as there are letters."""

    def encode(self, text: str, special: bool = False) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, tokens: object) -> str:
        return ""


class _Model:
    """A model of two tokens, whose logits no float holds the exponential of."""

    config = SimpleNamespace(vocabulary=2, context=8)
    options = SimpleNamespace(context=8)
    tokenizer = Tokenizer(_Letters(), (), frozenset())

    def session(self) -> Any:
        return self

    def take(self, tokens: list[int], every: bool) -> np.ndarray:
        return np.tile(np.array([1e4, -1e4], np.float32), (1, len(tokens), 1))


def test_tokens_that_the_model_has_no_rows_for(tmp_path: Path) -> None:
    text, model = tmp_path / "text.txt", _Model()
    text.write_text("abac" * 8)
    with pytest.raises(UserError, match="2 is not one of 2 tokens"):
        measure(model, [text])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="2 is not one of 2 tokens"):
        pieces_of([text], model.tokenizer, model.config, 4)  # type: ignore[arg-type]
    first = Tokenizer(_Letters(), (0,) * 300, frozenset())
    text.write_text("")
    with pytest.raises(UserError, match="the text has 0 of the 1 tokens that a piece of it needs"):
        pieces_of([text], first, model.config, 4)  # type: ignore[arg-type]
    text.write_text("abab")
    assert measure(model, [text]).perplexity == float("inf")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_links_to_nowhere_beside_a_tokenizer(tmp_path: Path, name: str) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    tokenizer_of_folder(tmp_path)
    for target in (name, "missing"):  # in a circle, too
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UserError, match=f"(symbolic links|no such file).*{name}"):
            tokenizer_of_folder(tmp_path)
        (tmp_path / name).unlink()


def test_rows_of_the_model_that_are_no_tokens() -> None:
    words = SentencePiece(["a"], [0.0], [NORMAL], 0, prefix=False)
    assert words.decode([0, 5, 0]) == "aa"


@pytest.mark.parametrize("key", ["truncation", "padding"])
def test_a_tokenizer_neither_cuts_a_prompt_nor_fills_it(tmp_path: Path, key: str) -> None:
    """A length in `tokenizer.json` is of what the file was made for; a thousand million crashed."""
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    fill: dict[str, Any] = {
        "strategy": {"Fixed": 10**9},
        "direction": "Right",
        "pad_to_multiple_of": None,
    }
    fill |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    whole = {"version": "1.0", "model": model, key: cut if key == "truncation" else fill}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert tokenizer_of_folder(tmp_path).encode("abba") == [0, 1, 1, 0]


def test_what_stands_for_a_name_is_cut_short():
    """A refusal is one line, whatever a file has where a name should be."""
    given = {"model": "gpt2", "tokens": ["a", "b"], "pre": ["y"] * 3000}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in given.items()}
    with pytest.raises(UserError, match="unknown pre-tokenizer") as caught:
        tokenizer_of_gguf(metadata, "model.gguf")
    assert len(caught.value.message) < 200
