"""XLA in a process of its own: the same results, and what becomes of a crash."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import jq
from jq.base.errors import CompilerError, XlaCrashed
from jq.cli.app import main
from jq.ir.oracle import loaded
from jq.ir.oracle.xla import XlaExecutable
from tests.iree.helpers import make_program

SUM = """func.func public @main(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
X = np.arange(4, dtype=np.float32)
TYPES = ("float32", "float64", "float16", "bfloat16", "int4", "int8", "int64", "bool", "complex64")


def test_a_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights of its own each time."""
    monkeypatch.setenv(loaded.VARIABLE, "here")
    loaded._compiled.cache_clear()
    made: list[bytes] = []
    load = loaded.load_by_xla
    monkeypatch.setattr(loaded, "load_by_xla", lambda m, *o: (made.append(m), load(m, *o))[1])
    for module in (SUM, SUM, SUM.replace("add", "subtract")):
        for weight in (X, 3 * X):
            (found,) = XlaExecutable(make_program(module, {"w": weight}))(X)
            assert np.array_equal(found, X - weight if "subtract" in module else X + weight)
    assert len(made) == 2


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(loaded.VARIABLE)


@pytest.fixture(autouse=True, scope="module")
def _stopped() -> Iterator[None]:
    yield
    loaded._PROCESS.stop()


def added() -> XlaExecutable:
    return XlaExecutable(make_program(SUM, {"w": np.ones(4, np.float32)}))


def crashing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """So many runs end with the process."""
    left, send = [times], loaded._send

    def sent(pipe: Any, message: Any) -> None:
        if message[0] == "run" and left[0]:
            left[0] -= 1
            os.kill(loaded._PROCESS.pid, signal.SIGSEGV)
        send(pipe, message)

    monkeypatch.setattr(loaded, "_send", sent)


@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)])
def test_arrays_of_every_type(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 2, shape).astype(getattr(ml_dtypes, t, t)) for t in TYPES]
    arrays.append(np.asfortranarray(rng.standard_normal((3, 5)).astype(np.float32)))
    short = {"bool": "i1", "bfloat16": "bf16", "complex64": "complex<f32>"}
    names = [short.get(t, t.replace("float", "f").replace("int", "i")) for t in TYPES]
    kinds = [f"tensor<{''.join(f'{n}x' for n in shape)}{n_}>" for n_ in names] + ["tensor<3x5xf32>"]
    args = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    values = ", ".join(f"%a{i}" for i in range(len(kinds)))
    text = f"return {values} : {', '.join(kinds)}"
    run = XlaExecutable(
        make_program(f"func.func public @main({args}) -> ({', '.join(kinds)}) {{ {text} }}")
    )
    for y, array in zip(run(*arrays), arrays, strict=True):
        assert y.dtype == array.dtype and y.flags.writeable
        np.testing.assert_array_equal(y, array)


def test_weights_that_are_bound_are_known_to_the_next_process() -> None:
    run, other = added(), added()
    run.bind({"w": 2 * X})
    np.testing.assert_array_equal(run(X)[0], 3 * X)
    loaded._PROCESS.stop()  # as after an interrupt
    np.testing.assert_array_equal(run(X)[0], 3 * X)
    np.testing.assert_array_equal(other(X)[0], X + 1)


def test_what_is_not_used_any_more_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run, send, closed = added(), loaded._send, []
    del run
    monkeypatch.setattr(loaded, "_send", lambda p, m: (closed.extend(m[3]), send(p, m)))
    np.testing.assert_array_equal(added()(X)[0], X + 1)
    assert len(closed) == 1


def test_a_crash_is_tried_again_without_optimizations(monkeypatch: pytest.MonkeyPatch) -> None:
    run, before = added(), loaded._PROCESS.pid
    crashing(monkeypatch, 1)
    with pytest.warns(UserWarning, match="SIGSEGV.*without optimizations"):
        np.testing.assert_array_equal(run(X)[0], X + 1)
    assert loaded._PROCESS.pid != before
    np.testing.assert_array_equal(run(X)[0], X + 1)


def test_after_a_crash_divisions_are_computed_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
      %c = stablehlo.constant dense<3.0> : tensor<4096xf32>
      %0 = stablehlo.divide %x, %c : tensor<4096xf32>
      return %0 : tensor<4096xf32>
    }"""
    run, x = XlaExecutable(make_program(text), strict=True), np.arange(4096, dtype=np.float32)
    crashing(monkeypatch, 1)
    with pytest.warns(UserWarning, match="without optimizations"):
        np.testing.assert_array_equal(run(x)[0], x / np.float32(3))


def test_no_other_thread_starts_a_process_between_a_number_and_what_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, opened, free = added(), loaded.Apart._opened, list[bool]()

    def number(apart: loaded.Apart) -> int:
        tries = lambda: free.append(loaded._PROCESS.lock.acquire(blocking=False))  # noqa: E731
        (thread := threading.Thread(target=tries)).start()
        thread.join()
        return opened(apart)

    monkeypatch.setattr(loaded.Apart, "_opened", number)
    np.testing.assert_array_equal(run(X)[0], X + 1)
    assert free == [False]


def test_a_crash_that_comes_again_is_an_error_and_the_next_program_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = added()
    crashing(monkeypatch, 2)
    with pytest.warns(UserWarning, match="SIGSEGV"), pytest.raises(XlaCrashed, match="SIGSEGV"):
        run(X)
    np.testing.assert_array_equal(added()(X)[0], X + 1)


def test_errors_are_those_of_this_process() -> None:
    text = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @no_such_thing(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(CompilerError, match="XLA cannot compile"):
        XlaExecutable(make_program(text))
    np.testing.assert_array_equal(added()(X)[0], X + 1)


def test_a_crash_does_not_take_the_process_of_who_calls_from_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    samples = [(row[None],) for row in weights[:4]]
    model = jq.Model(lambda p, x: x @ p["w"], {"w": weights}, samples[0], calibration=samples)
    crashing(monkeypatch, 1)
    with pytest.warns(UserWarning, match="SIGSEGV.*without optimizations"):
        compiled = jq.compile(model, "int8-static", cache=False)
    for times in (1, 2):
        crashing(monkeypatch, times)
        with pytest.warns(UserWarning, match="SIGSEGV"), suppress(XlaCrashed):
            assert jq.compare(model, compiled).outputs[0].sqnr_db > 30 and times == 1


MODEL = """
import numpy as np
import jq

weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
model = jq.Model(lambda p, x: x @ p["w"], {"w": weights}, (x,), calibration=[(x,)])
"""


@pytest.mark.parametrize("times", [1, 2])
def test_commands_say_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    (tmp_path / "my.py").write_text(MODEL)
    model, artifact = f"{tmp_path / 'my.py'}:model", str(tmp_path / "out")
    assert main(["compile", model, "--pipeline", "int8-static", "-o", artifact, "-q"]) == 0
    for command in (
        ["compare", model, artifact],
        ["compare", model, artifact, artifact],
        ["calibrate", model, "-o", str(tmp_path / "ranges.json")],
        ["search", model, "--budget", "sqnr_db>=20", "-o", str(tmp_path / "found.toml")],
    ):
        crashing(monkeypatch, times)
        capsys.readouterr()
        code, said = main(command), capsys.readouterr().err
        monkeypatch.undo()
        monkeypatch.delenv(loaded.VARIABLE)
        lines = [line for line in said.splitlines() if "SIGSEGV" in line]
        assert len(lines) == times, said
        assert code == (0 if times == 1 else 2), said
        assert "Traceback" not in said and "internal" not in said
