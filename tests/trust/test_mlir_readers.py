"""Modules that crash MLIR's readers, or never end, are refused in one line."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jq.api import compile, rewrite
from jq.base.errors import UserError
from jq.base.guard.limits import Limits, Reading, limited, parse_size
from jq.base.guard.worker import Worker
from jq.driver.loading import load
from jq.driver.weights.quantize import quantize_weights
from jq.frontends.tracing.entry import trace
from jq.ir import context, ir
from tests.trust.artifacts import copy_of, rehashed

GOOD = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}"""


def nested(count: int, before: str, after: str, middle: str) -> str:
    return before * count + middle + after * count


CRASHES = {
    "nested tuples": f"func.func @main(%x: {nested(50_000, 'tuple<', '>', 'f32')}) {{ return }}",
    "deep attribute": f"module attributes {{a = {nested(200_000, '[', ']', '')}}} {{}}",
    "deep dictionary": f"module attributes {{a = {nested(100_000, '{a = ', '}', '1')}}} {{}}",
    "nested modules": nested(5_000, "module {", "}", ""),
    "nested many": nested(200_000, "module {", "}", ""),
    "deep locations": GOOD
    + " loc("
    + nested(100_000, "callsite(unknown at ", ")", "unknown")
    + ")",
}


@pytest.mark.parametrize("name", CRASHES)
def test_nesting(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(CRASHES[name])
    with pytest.raises(UserError) as info:
        trace(path)
    assert str(path) in str(info.value) and "\n" not in str(info.value)


def test_text_in_bytecode_that_is_not_utf8(tmp_path: Path) -> None:
    path, marked = (
        tmp_path / "model.mlirbc",
        GOOD.replace("xf32>\n  return", 'xf32> loc("abcdefgh")\n  return'),
    )
    with context():
        module = ir.Module.parse(marked, context())
        with path.open("wb") as file:
            module.operation.write_bytecode(file)
    data = path.read_bytes()
    assert b"abcdefgh" in data
    path.write_bytes(data.replace(b"abcdefgh", b"abc\xff\xfe\xfdgh"))
    with pytest.raises(UserError) as info:
        trace(path)
    assert str(path) in str(info.value)
    path.write_bytes(data)
    assert len(trace(path).inputs) == 1


def test_a_type_that_contains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLIR's reader of bytecode follows it forever: the time of the processor is limited, too. The
    file is one of `scripts/suite.py fuzz`: one byte makes a function's type its own argument."""
    monkeypatch.setattr(Limits, "reading", lambda *_: Reading(1, 600, 1 << 30))
    with pytest.raises(UserError, match=r"more than 1 s .*--timeout allows more"):
        trace(Path(__file__).parent / "type_in_itself.mlirbc")


def test_text_that_is_given_in_python() -> None:
    with pytest.raises(UserError, match="the module's text"):
        quantize_weights(CRASHES["nested tuples"] + "\n")


def test_after_a_crash_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    for text, fine in ((CRASHES["nested tuples"], False), (GOOD, True)):
        path.write_text(text)
        if fine:
            assert trace(path).inputs[0].shape == (4,)
        else:
            with pytest.raises(UserError):
                trace(path)


def test_a_program_of_an_artifact(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    (folder / "program.mlir").write_text(CRASHES["deep attribute"])
    rehashed(folder)
    with pytest.raises(UserError, match=r"program\.mlir"):
        load(folder).audit()


KINDS = {
    "unranked": "tensor<*xf32>",
    "tuple": "tuple<tensor<4xf32>>",
    "token": "!stablehlo.token",
    "memref": "memref<4xf32>",
    "index": "tensor<4xindex>",
    "scalar": "f32",
    "vector": "vector<4xf32>",
    "none": "none",
    "function": "(f32) -> f32",
}


@pytest.mark.parametrize("name", KINDS)
def test_arguments_that_no_program_takes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(
        f"func.func @main(%x: {KINDS[name]}) -> {KINDS[name]} {{ return %x : {KINDS[name]} }}"
    )
    with pytest.raises(UserError) as info:
        trace(path)
    assert str(path) in str(info.value)


@pytest.mark.parametrize(
    "name", ["zzz", "dequantize", "quantize", "fake_quant", "contract", "edge"]
)
def test_composites_of_ours_that_we_did_not_write(name: str, tmp_path: Path) -> None:
    """Opened as any other's, or refused."""
    path = tmp_path / "model.mlir"
    path.write_text(COMPOSITE.replace("NAME", f"jq.{name}").replace("T", "tensor<4xf32>"))
    with suppress(UserError):
        assert len(rewrite(path)) == 4


COMPOSITE = """
func.func public @main(%x: T) -> T {
  %y = stablehlo.composite "NAME" %x {decomposition = @f} : (T) -> T
  return %y : T
}
func.func private @f(%x: T) -> T {
  return %x : T
}"""


# Functions that a worker runs, as readers may behave.
def sleep(data: bytes) -> None:
    time.sleep(60)


def allocate(data: bytes) -> int:
    return len(np.ones(1 << 30, np.uint8))


def abort(data: bytes) -> None:
    os.abort()


def leave(data: bytes) -> None:
    os._exit(0)


def chatter(data: bytes) -> int:
    print("not an answer", flush=True)
    os.write(1, b"nor this\n")
    return len(data)


HERE = "tests.trust.test_mlir_readers"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    # It sees what is installed and this package; the tests lie beside that.
    return Worker()


@pytest.mark.parametrize(
    ("function", "allowed", "message"),
    [
        ("sleep", Limits(seconds=1), r"more than 1 s \[x\]; --timeout allows more"),
        ("allocate", Limits(memory=64 << 20), "too much memory"),
        ("abort", Limits(), r"crashed \(SIGABRT\)"),
        ("leave", Limits(), "its reader ended"),
        ("nothing", Limits(), "AttributeError"),
    ],
)
def test_what_a_reader_may_do(function: str, allowed: Limits, message: str, worker: Worker) -> None:
    try:
        with limited(allowed), pytest.raises(UserError, match=message):
            worker.ask(f"{HERE}:{function}", b"abc", "x")
        assert worker.ask(f"{HERE}:chatter", bytes(5_000_000), "x") == 5_000_000
    finally:
        worker.stop()


def test_an_interrupted_question_leaves_no_answer_behind(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jq.base.guard import worker as module

    def interrupted(process: Any, data: bytes, seconds: float) -> bytes:
        exchange(process, data, seconds)
        raise KeyboardInterrupt

    exchange = module.exchange
    try:
        with monkeypatch.context() as patch:
            patch.setattr(module, "exchange", interrupted)
            with pytest.raises(KeyboardInterrupt):
                worker.ask(f"{HERE}:chatter", bytes(7), "x")
        assert worker._process is None
        assert worker.ask(f"{HERE}:chatter", bytes(5), "x") == 5
    finally:
        worker.stop()


@pytest.mark.parametrize("text", ["512M", "0.5g", "536870912", "512 MiB"])
def test_sizes(text: str) -> None:
    assert parse_size(text) == 512 << 20
    for wrong in ("", "M", "-1G", "nan", "1e400", "12x", "1"):
        with pytest.raises(UserError, match="is no size"):
            parse_size(wrong)


@pytest.mark.parametrize("name", ["../stray", "a/b", "<i>", "é", "", "x" * 300])
def test_no_file_is_called_after_a_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IREE's compiler does that, in a folder of its own; `..` would lead out of it."""
    for folder in ("model", "temporary"):
        (tmp_path / folder).mkdir()
    path = tmp_path / "model/model.mlir"
    path.write_text(f'module @"{name}" {{ {GOOD} }}')
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    compile(path, "float", cache=False)
    files = [p.name for p in tmp_path.rglob("*") if p.is_file() and "crash" not in str(p)]
    assert files == ["model.mlir"]


def test_an_ordinary_name_of_a_module_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(f"module @jit_model {{ {GOOD} }}")
    assert "module @jit_model" in trace(path).text()
