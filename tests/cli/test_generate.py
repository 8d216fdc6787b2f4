"""`jaxq generate` and `jaxq perplexity` on a tiny model."""

from __future__ import annotations

import io
import json

import pytest

import jq
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


def test_it_ends_before_a_text(made, capsys):
    command = ["generate", str(made), "--prompt", "abc", "--max-tokens", "6", "--context", "32"]
    assert main([*command, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["text"]
    stop = whole[2:4]
    assert main([*command, "--json", "--stop", "~", "--stop", stop]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ended"] == "stop"
    assert document["text"] == whole[: whole.index(stop)]
    assert main([*command, "--stop", stop]) == 0
    assert capsys.readouterr().out == document["text"] + "\n"


def test_a_prompt_from_a_file_or_from_standard_input(made, tmp_path, capsys, monkeypatch):
    command = ["generate", str(made), "--max-tokens", "3", "--context", "32", "--json"]
    (tmp_path / "prompt.txt").write_text("abc\n")
    found = []
    for given in (["--prompt", "abc"], ["--prompt-file", str(tmp_path / "prompt.txt")]):
        assert main([*command, *given]) == 0
        found.append(json.loads(capsys.readouterr().out)["tokens"])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc\n")))
    assert main([*command, "--prompt", "-"]) == 0
    found.append(json.loads(capsys.readouterr().out)["tokens"])
    assert found[0] == found[1] == found[2]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    assert main([*command, "--prompt", "-"]) == 2
    assert "no Unicode text" in capsys.readouterr().err


def test_a_conversation_has_several_turns(made, capsys, monkeypatch):
    """The second question's answer is that to the whole of it at once."""
    options = ["--chat", "--max-tokens", "3", "--context", "32", "--system", "ab"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc\n\nde\n")))
    assert main(["generate", str(made), *options]) == 0
    first, second, _ = capsys.readouterr().out.split("\n")
    whole = jq.LanguageModel(made, context=32)
    turns = [("system", "ab"), ("user", "abc"), ("assistant", first), ("user", "de")]
    prompt = whole.chat([{"role": role, "content": text} for role, text in turns])
    assert "".join(whole.generate(prompt, 3).pieces()) == second
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc\n" + b"a" * 30)))
    assert main(["generate", str(made), *options]) == 0
    found = capsys.readouterr()
    assert found.out == first + "\n"
    assert "ends here" in found.err and "does not fit" in found.err


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--stop", ""], "empty"),
        (["--system", "x"], "--chat"),
        (["--prompt-file", "x"], "both given"),
        (["--context", "1000"], "context"),
        (["--context", "3"], "does not fit"),
        (["--pipeline", "no-such"], "no-such"),
    ],
)
def test_a_mistake_is_one_line(made, capsys, more, reason):
    assert main(["generate", str(made), "--prompt", "abc", *more]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert reason in lines[-1]


def test_a_prompt_is_needed(made, capsys):
    for more in ([], ["--chat", "--json"]):
        assert main(["generate", str(made), *more]) == 2
        assert "there is no prompt" in capsys.readouterr().err


def test_a_damaged_file_is_refused(made, tmp_path, capsys):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(made.read_bytes()[:-64])
    assert main(["generate", str(cut), "--prompt", "abc"]) == 2
    assert "byte" in capsys.readouterr().err
    assert main(["generate", str(tmp_path), "--prompt", "abc"]) == 2
    assert "config.json" in capsys.readouterr().err


FOREIGN = {
    "compile {m} -o x --set a=b": "--set is not for",
    "compile {m} -o x --iree-flag=--x": "--iree-flag is not for",
    "compile {m} -o x --target npu-int8": "--target is not for",
    "compile {m} -o x --no-measure": "--no-measure is not for",
    "compile {m} -o x --no-cache": "--no-cache is not for",
    "compare {m} --format csv": "--format is not for",
    "compare {m} -j 3": "--jobs is not for",
    "compile jq.models:digits_cnn -o x --kv-cache int8": "--kv-cache is for",
    "compare jq.models:digits_cnn --limit 3": "--limit is for",
}


@pytest.mark.parametrize("command", FOREIGN)
def test_options_of_the_other_kind_of_model(command, made, capsys):
    assert main(command.format(m=made).split()) == 2
    assert f"{FOREIGN[command]} language models" in capsys.readouterr().err


def test_the_plan_is_that_of_what_generates(made, capsys):
    assert main(["explain", str(made), "--json"]) == 0
    ops = {op["name"]: op for op in json.loads(capsys.readouterr().out)["ops"]}
    for name, kind in (("mlp/down", "int8"), ("attention/key", "int16")):
        assert ops[f"layers/1/{name}/weight"]["activations"].startswith(f"{kind} per-block")
    assert main(["check", str(made), "--size", "n=3"]) == 2
    assert "--size is not for language models" in capsys.readouterr().err
