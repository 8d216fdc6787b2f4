from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.artifact import modules
from jq.artifact.keys import digest
from jq.artifact.modules import compile_cached
from jq.artifact.store import entries
from jq.base.errors import CompilerError
from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.ir import Program
from jq.iree.compiler import HOST_FLAGS, Compilation, compile_module
from jq.iree.handover import handover
from tests.iree.helpers import make_program

ADD = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Sources that the compiler really ran on; its results are 1000 bytes."""
    seen: list[bytes] = []

    def fake(source: bytes, **_: Any) -> Compilation:
        seen.append(source)
        return Compilation(source[:1] * 1000, "module {}", 1.5)

    monkeypatch.setattr(modules, "compile_module", fake)
    return seen


def test_second_run_is_the_first_ones_result(tmp_path: Path) -> None:
    first = compile_cached(ADD, root=tmp_path)
    assert compile_cached(ADD, root=tmp_path) == first
    fresh = compile_module(ADD)
    assert (first.vmfb, first.program) == (fresh.vmfb, fresh.program)


def test_hits_and_misses(runs: list[bytes], tmp_path: Path) -> None:
    for source in (b"a", b"a", b"b", b"a"):
        assert compile_cached(source, root=tmp_path).vmfb == source * 1000
    compile_cached(b"a", root=tmp_path, flags=[*HOST_FLAGS, "--x"])
    assert runs == [b"a", b"b", b"a"]


def test_damaged_entries_are_compiled_again(runs: list[bytes], tmp_path: Path) -> None:
    compile_cached(b"a", root=tmp_path)
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", b"{}\n", b"\xff", whole[:-1], whole[:-1] + b"!", b"[]\n" + whole):
        entry.write_bytes(damaged)
        assert compile_cached(b"a", root=tmp_path).vmfb == b"a" * 1000
    assert len(runs) == 7
    assert entry.read_bytes() == whole


def test_an_entry_under_the_name_of_another_is_not_believed(
    runs: list[bytes], tmp_path: Path
) -> None:
    compile_cached(b"a", root=tmp_path)
    (first,) = tmp_path.iterdir()
    compile_cached(b"b", root=tmp_path)
    (second,) = {*tmp_path.iterdir()} - {first}
    shutil.copy(first, second)
    assert compile_cached(b"b", root=tmp_path).vmfb == b"b" * 1000
    assert len(runs) == 3


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "circle"])
def test_what_is_no_file_is_no_entry(kind: str, runs: list[bytes], tmp_path: Path) -> None:
    compile_cached(b"a", root=tmp_path)
    (entry,) = tmp_path.iterdir()
    entry.unlink()
    if kind == "pipe":
        os.mkfifo(entry)
    elif kind == "folder":
        entry.mkdir()
    else:
        entry.symlink_to("/dev/zero" if kind == "device" else entry.name)
    assert compile_cached(b"a", root=tmp_path).vmfb == b"a" * 1000
    assert len(runs) == 2


def test_least_recently_used_goes_first(runs: list[bytes], tmp_path: Path) -> None:
    for i, source in enumerate((b"a", b"b", b"c")):
        compile_cached(source, root=tmp_path, limit=4000)
        os.utime(max(entries(tmp_path)).path, (i, i))
    compile_cached(b"a", root=tmp_path, limit=4000)  # used now
    compile_cached(b"d", root=tmp_path, limit=4000)
    for source in (b"a", b"c", b"d"):
        compile_cached(source, root=tmp_path, limit=4000)
    assert runs == [b"a", b"b", b"c", b"d"]
    compile_cached(b"b", root=tmp_path, limit=4000)
    assert runs[-1] == b"b"


def test_a_cache_that_cannot_be_written_is_none(runs: list[bytes], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert compile_cached(b"a", root=blocked).vmfb == b"a" * 1000
    assert blocked.read_text() == "not a directory"


def test_errors_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> Compilation:
        raise CompilerError("no")

    monkeypatch.setattr(modules, "compile_module", fail)
    with pytest.raises(CompilerError):
        compile_cached(b"a", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


DENSE = """func.func public @main(%x: tensor<4x600xf32>, %w: tensor<4x600xf32>,
    %v: tensor<4x600xi8>) -> tensor<4x600xf32> {
  %0 = stablehlo.convert %v : (tensor<4x600xi8>) -> tensor<4x600xf32>
  %1 = stablehlo.add %x, %w {jq.name = "a"} : tensor<4x600xf32>
  %2 = stablehlo.add %1, %0 {jq.name = "b"} : tensor<4x600xf32>
  return %2 : tensor<4x600xf32>
}"""


def handover_keys() -> list[str]:
    weights = {"w": np.ones((4, 600), np.float32), "v": np.ones((4, 600), np.int8)}
    program = make_program(DENSE, weights)
    return [digest(handover(program, inline_limit=n).bytecode) for n in (0, 1 << 20)]


def test_hand_over_is_the_same_in_every_process() -> None:
    """Else nothing would ever be found."""
    script = "from tests.artifact.test_modules import handover_keys; print(*handover_keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == handover_keys()


def traced(model: Callable[[jax.Array], jax.Array]) -> Program:
    spec = jax.ShapeDtypeStruct((4, 8), np.float32)
    return trace(Model(fn=lambda _, x: model(x), params={}, example_inputs=(spec,)))


def test_a_model_is_found_from_another_line() -> None:
    first = traced(lambda x: jnp.tanh(x) @ jnp.ones((8, 8)))
    moved = traced(lambda x: jnp.tanh(x) @ jnp.ones((8, 8)))
    other = traced(lambda x: jnp.tanh(x) @ jnp.ones((8, 4)))
    assert first.bytecode() == moved.bytecode()
    key, same, another = (digest(handover(program).bytecode) for program in (first, moved, other))
    assert key == same != another
