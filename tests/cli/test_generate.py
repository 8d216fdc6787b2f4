"""`jaxq generate` and `jaxq perplexity` on a tiny model."""

from __future__ import annotations

import json

import pytest

from jq.cli.app import main
from tests.support.decoders import write_gguf


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    return write_gguf("llama-one-head-of-keys", folder / "tiny.gguf")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def test_the_document_and_the_text_are_one(made, capsys):
    command = ["generate", str(made), "--prompt", "abc", "--max-tokens", "4", "--context", "32"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {
        "text",
        "tokens",
        "prompt_tokens",
        "first_token_s",
        "prefill_tokens_per_s",
        "decode_tokens_per_s",
        "peak_rss_bytes",
        "ended",
    }
    assert document["prompt_tokens"] == 5
    assert main(command) == 0
    found = capsys.readouterr()
    assert found.out == document["text"] + "\n"
    assert "tokens/s" in found.err
    drawn = [*command, "--temperature", "2", "--top-k", "20", "--top-p", "0.9", "--json"]
    assert main([*drawn, "--seed", "1"]) == main([*drawn, "--seed", "1"]) == 0
    first, second = capsys.readouterr().out.split("\n{", 1)
    assert json.loads(first)["tokens"] == json.loads("{" + second)["tokens"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--context", "1000"], "context"),
        (["--context", "3"], "does not fit"),
        (["--pipeline", "no-such"], "no-such"),
    ],
)
def test_a_mistake_is_one_line(made, capsys, more, reason):
    assert main(["generate", str(made), "--prompt", "abc", *more]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert reason in lines[-1]


def test_a_damaged_file_is_refused(made, tmp_path, capsys):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(made.read_bytes()[:-64])
    assert main(["generate", str(cut), "--prompt", "abc"]) == 2
    assert "byte" in capsys.readouterr().err
    assert main(["generate", str(tmp_path), "--prompt", "abc"]) == 2
    assert "config.json" in capsys.readouterr().err
