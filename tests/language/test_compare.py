"""Language models are compared on text: perplexity, KL divergence, changed tokens."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import entropy

import jq
from jq.cli.app import main
from jq.language.build import write
from jq.language.decoder import load_decoder
from jq.language.saved import save
from jq.language.store import options_for
from tests.support.decoders import write_gguf

CONTEXT = 24


@pytest.fixture(scope="module", autouse=True)
def cheap_programs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for module, builder in (("session", "programs"), ("saved", "saved")):
            patch.setattr(f"jq.language.{module}.COSTS", {1: 1.0, 16: 22.0})
            patch.setattr(f"jq.language.{builder}.build", write)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_gguf("llama-one-head-of-keys", tmp_path_factory.mktemp("compare") / "tiny.gguf")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "some.txt"
    path.write_text("abcabcabcabacbacabcbacbcabcabcbabc")
    return path


def figures(file, text):
    """By SciPy, on the logits of both: perplexity of either, KL, tokens that differ, and tokens."""
    models = [jq.LanguageModel(file, pipeline=p, context=CONTEXT) for p in ("float", None)]
    tokens = models[0].tokenizer.codec.encode(text.read_text())
    first = list(models[0].tokenizer.first)
    room, rows, right = CONTEXT - len(first), [[], []], []
    for start in range(0, len(tokens) - 1, room):
        piece = first + tokens[start : start + room]
        skip = len(first) - 1
        right += piece[skip + 1 :]
        for found, model in zip(rows, models, strict=True):
            found.append(model.session().take(piece, every=True)[0][skip:-1])
    exact, ours = (log_softmax(np.concatenate(r).astype(np.float64), axis=-1) for r in rows)
    at = np.arange(len(right)), np.array(right)
    kl = entropy(np.exp(exact), np.exp(ours), axis=-1)
    return {
        "metrics": {
            "perplexity": {
                "float": np.exp(-exact[at].mean()),
                "quantized": np.exp(-ours[at].mean()),
            }
        },
        "kl": kl.mean(),
        "kl_largest": kl.max(),
        "changed": int((exact.argmax(-1) != ours.argmax(-1)).sum()),
        "tokens": len(right),
    }


def test_figures_are_those_of_the_definition(file, text, capsys, tmp_path, monkeypatch):
    """In the library, on the command line, and of an artifact; also its perplexity alone."""
    want = figures(file, text)
    command = ["compare", str(file), "--text", str(text), "--window", str(CONTEXT), "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    for name in ("kl", "kl_largest", "tokens", "changed"):
        assert found[name] == pytest.approx(want[name], rel=1e-9), name
    assert found["metrics"]["perplexity"] == pytest.approx(want["metrics"]["perplexity"], rel=1e-9)
    assert found["top1_agreement"] == 1 - want["changed"] / want["tokens"]
    assert 0 < found["kl"] < 1e-2

    exact, ours = (jq.LanguageModel(file, pipeline=p, context=CONTEXT) for p in ("float", None))
    assert exact.compare(ours, text).kl == found["kl"]
    assert ours.perplexity(text, limit=9).tokens < found["tokens"]

    decoder, made = load_decoder(file), tmp_path / "made"
    save(decoder, options_for(decoder, None, None, CONTEXT), made)
    assert main([*command[:2], str(made), *command[2:]]) == 0
    assert json.loads(capsys.readouterr().out)["kl"] == found["kl"]
    assert main([*command[:2], str(made), str(file), *command[2:], "--threads", "2"]) == 0
    assert [r["kl"] for r in json.loads(capsys.readouterr().out)["artifacts"]] == [found["kl"]] * 2
    assert main(["perplexity", str(made), str(text), "--json"]) == 0
    quantized = found["metrics"]["perplexity"]["quantized"]
    assert json.loads(capsys.readouterr().out)["perplexity"] == quantized
    monkeypatch.setattr("jq.cli.generate.WINDOW", CONTEXT)
    for windows in ([], ["--window", str(CONTEXT)]):
        assert main(["perplexity", str(file), str(text), "--json", *windows]) == 0
        assert json.loads(capsys.readouterr().out)["perplexity"] == quantized
    assert main(["perplexity", str(made), str(text), "--against", "float"]) == 2
    assert "jaxq compare" in capsys.readouterr().err


def test_a_window_is_no_longer_than_the_context(file, text, capsys):
    """512 tokens by default, where the model has 64."""
    assert main(["perplexity", str(file), str(text), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] > 1
    for window in ("512", "0"):
        assert main(["perplexity", str(file), str(text), "--window", window]) == 2
        assert f"a context of {window} tokens is not possible" in capsys.readouterr().err


def test_a_folder_with_files_is_refused_before_codes_are_fitted(file, text, capsys, monkeypatch):
    monkeypatch.setattr("jq.language.fitted_folder.fit_folder", None)
    command = ["compile", str(file), "-o", str(text.parent), "-p", "int4-dynamic"]
    assert main([*command, "--text", str(text)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_what_cannot_be_compared_says_why(file, text, capsys, tmp_path):
    other, key = tmp_path / "other.gguf", b"tokenizer.ggml.bos_token_id" + struct.pack("<I", 4)
    front, back = file.read_bytes().split(key)
    other.write_bytes(front + key + struct.pack("<I", 3) + back[4:])  # another token in front
    for more, reason in (
        ([], "--text"),
        (["--text", str(text), "--layers"], "--layers"),
        ([str(other), "--text", str(text)], "other tokens"),
    ):
        assert main(["compare", str(file), *more]) == 2
        assert reason in capsys.readouterr().err
    for given in (["--text", str(text)], ["--threads", "2"]):
        assert main(["compare", "jq.models:minilm", *given]) == 2
        assert "language models" in capsys.readouterr().err
