"""Limits as options, and what comes in files of models after them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from jq.base.errors import UserError
from jq.base.guard.limits import Limits, limited
from jq.base.guard.worker import WORKER
from jq.cli.app import main
from jq.iree.compiler import compile_module
from jq.language.chat import chat_prompt
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.tokenizer import Tokenizer

MODULE = """func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}"""


def line_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def onnx_file(path: Path, size: int) -> Path:
    """A graph that makes an array of `size` zeros and adds them up."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [size])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def test_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(MODULE)
    assert "took more than 1e-09 s" in line_of(capsys, "explain", str(path), "--timeout", "1e-9")
    for none in ("0", "-1", "nan", "inf", "1e300"):
        assert "are no limit" in line_of(capsys, "explain", str(path), f"--timeout={none}")
    assert "is no size" in line_of(capsys, "explain", str(path), "--max-memory", "lots")
    assert main(["explain", str(path), "-q", "--timeout", "60", "--max-memory", "4G"]) == 0


def test_the_compiler() -> None:
    for memory in (1 << 20, 96 << 20, 200 << 20):  # it cannot be loaded, or not start a thread
        with limited(Limits(memory=memory)), pytest.raises(UserError, match="--max-memory"):
            compile_module(MODULE.encode())
    assert compile_module(MODULE.encode()).vmfb


def test_an_onnx_file_is_read_behind_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = onnx_file(tmp_path / "m.onnx", 100)
    assert main(["explain", str(path), "-q", "-p", "float"]) == 0
    assert main(["inspect", str(path), "-q"]) == 0
    onnx_file(path, 1 << 62)
    assert "m.onnx" in line_of(capsys, "explain", str(path))
    path.write_bytes(path.read_bytes()[:-9])
    for command in ("explain", "inspect"):
        assert "m.onnx" in line_of(capsys, command, str(path))


def test_a_tokenizer(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    assert tokenizer_of_folder(tmp_path).encode("a") == [0]
    for beside in ("tokenizer_config.json", "chat_template.jinja"):  # not as if it were not there
        os.mkfifo(tmp_path / beside)
        with pytest.raises(UserError, match="not a file but a pipe"):
            tokenizer_of_folder(tmp_path)
        (tmp_path / beside).unlink()
    vocabulary = {"a": 0, "[UNK]": 1}  # the library panics: this merge makes no token
    model = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "[UNK]"]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    with pytest.raises(UserError, match="cannot be read: PanicException"):
        tokenizer_of_folder(tmp_path)
    for content in (b"", b"{", b"\xff", b"[" * 100_000, b'{"version": "1.0", "model": 1}'):
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(UserError, match=r"tokenizer\.json"):
            tokenizer_of_folder(tmp_path)


def test_a_pattern_of_a_tokenizer_that_takes_too_long(tmp_path: Path) -> None:
    cut = {"type": "Split", "pattern": {"Regex": "(a+)+$|((a*)*)*c"}, "behavior": "Isolated"}
    content = {
        "version": "1.0",
        "pre_tokenizer": {**cut, "invert": False},
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    read = tokenizer_of_folder(tmp_path)
    with pytest.raises(UserError, match="cannot read this text: .*retry-limit"):
        read.encode("a" * 30 + "X")


class _Nothing:
    def encode(self, text: str, special: bool = False) -> list[int]:
        return []

    def decode(self, tokens: object) -> str:
        return ""


@pytest.mark.parametrize(
    ("template", "message", "seconds"),
    [
        ("{% for a in range(99999) %}" * 2 + "{% endfor %}" * 2, "than 1 s ", 1.00008),
        ("{{ 'a' * 10 ** 11 }}", "memory", 60),
        ("{{ ''.__class__.__mro__ }}", "the chat template fails", 60),
        ("{{ raise_exception('no') }}", "refuses these messages: no", 60),
        ("{{ raise_exception('x' * 10 ** 8) }}", "refuses these messages: x", 60),
        ("{{ 'x' * 10 ** 7 }}", "makes 10000000 characters, at most 1049216 are taken", 60),
        ("{{ '\ud800' }}", "the chat template is no Unicode text", 60),
    ],
)
def test_a_chat_template_that_never_ends(template: str, message: str, seconds: float) -> None:
    tokenizer = Tokenizer(_Nothing(), (), frozenset(), template, {})
    with limited(Limits(seconds=seconds)), pytest.raises(UserError, match=message) as info:
        chat_prompt(tokenizer, [{"role": "user", "content": "x"}])
    assert len(str(info.value)) < 20_000


def test_a_long_answer_is_read_in_a_time_that_grows_with_it() -> None:
    """It was copied whole for every piece that came: ten seconds for this one."""
    start = time.process_time()
    found = WORKER.ask("codecs:decode", b"x" * (5 * 10**7), "it", encoding="ascii")
    assert len(found) == 5 * 10**7 and time.process_time() - start < 5
    with limited(Limits(memory=256 << 20)), pytest.raises(UserError, match="it makes 40000002 byt"):
        WORKER.ask("codecs:decode", b"x" * (4 * 10**7), "it", encoding="ascii")


def _growing(part: str) -> dict[str, object]:
    """A tokenizer that makes 2^60 letters of one, on the way `part`."""
    step = {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}
    steps = "normalizers" if part == "normalizer" else "decoders"
    return {
        "version": "1.0",
        part: {"type": "Sequence", steps: [step] * 60},
        "model": {"type": "WordLevel", "vocab": {"e": 0}, "unk_token": "e"},
    }


def test_a_tokenizer_that_makes_much_of_little(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(_growing("normalizer")))
    read = tokenizer_of_folder(tmp_path)  # until it gets that letter
    with limited(Limits(memory=512 << 20)), pytest.raises(UserError, match=r"tokenizer\.json"):
        read.encode("e")
    assert read.encode("") == []
    path.write_text(json.dumps(_growing("decoder")))
    with pytest.raises(UserError, match=r"its decoder makes a text 1\.15e\+18 times as long"):
        tokenizer_of_folder(tmp_path)
