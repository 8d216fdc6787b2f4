"""A sample of `scripts/suite.py fuzz`, always the same; readers behind a process run by hand."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jq.base.errors import UserError
from tests.support.child import Child

CORPUS = Path(__file__).parents[1] / "trust/corpus"
IN_PROCESS = ("gguf", "manifest", "ranges", "pipeline", "target", "npz", "npy", "irpa")
IN_PROCESS += ("safetensors", "parameters", "config", "signature", "onnx", "language", "program")
IN_PROCESS += ("tflite", "tosa")


def test_no_reader_is_left_out() -> None:
    from suites.readers import READERS

    assert {name for name, each in READERS.items() if not each.guarded} == {*IN_PROCESS}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_mutated_files(name: str, tmp_path: Path) -> None:
    """In this process: what crashed it would be new, on files that are the same in every run."""
    from suites import fuzz
    from suites.readers import READERS

    reader, seeds, read = READERS[name], fuzz.seeds_of(name, CORPUS), 0
    for index in range(100):
        data = fuzz.mutation(name, seeds, 0, index)
        fine, reason = fuzz.judge(reader, tmp_path / reader.file, data)
        assert not reason, f"mutation {index}: {reason}"
        read += fine
    assert read < 90


def test_what_a_copy_does(child: Child, tmp_path: Path) -> None:
    """It dies, waits or never ends: the next mutations are read all the same."""
    failed, guarded = child.call(copies, tmp_path)
    assert failed == [(3, "the process ended: -6"), (7, "KeyError: 'x'"), (8, "more than 1 s")]
    assert guarded == {5: "the process ended: -6"}


def copies(folder: Path) -> tuple[list[tuple[int, str]], dict[int, str]]:
    """Failures of a reader that aborts, raises or never ends on some mutations."""
    from suites import fuzz
    from suites.readers import READERS, Reader

    from jq.base.guard.worker import WORKER

    def read(path: Path) -> None:
        match int(path.read_text()):
            case 3:
                os.abort()
            case 5:
                WORKER.ask(f"{__name__}:aborts", b"", "x")
            case 7:
                raise KeyError("x")
            case 8:
                while True:
                    pass

    READERS["x"] = Reader("x", read, lambda _: [b"0"])
    fuzz.SECONDS, fuzz.apart = 1, lambda *_: [b"0"]
    fuzz.mutation = lambda *given: str(given[-1]).encode()
    counted = fuzz.Count()
    found = [*fuzz.fuzz("x", 0, range(10), None, counted, time.monotonic() + 300)]
    assert counted.tried == 10, counted
    return [(failure.index, failure.reason) for failure in found], counted.guarded


def aborts(_: bytes) -> None:
    os.abort()


@pytest.mark.parametrize("name", IN_PROCESS)
def test_seeds_are_read(name: str, tmp_path: Path) -> None:
    """Mutations of what is refused anyway would prove nothing."""
    from suites.readers import READERS

    reader, read = READERS[name], 0
    (tmp_path / "seeds").mkdir()
    for i, data in enumerate(reader.seeds(tmp_path / "seeds")):
        (tmp_path / str(i)).mkdir()
        path = tmp_path / str(i) / reader.file
        path.write_bytes(data)
        with suppress(UserError):  # the configs but the first are of other tensors
            reader.read(path)
            read += 1
    assert read


def test_what_failed_once(tmp_path: Path) -> None:
    from suites import fuzz
    from suites.readers import READERS

    for path in sorted(CORPUS.glob("*/*")):
        reader = READERS[path.parent.name]
        _, reason = fuzz.judge(reader, tmp_path / reader.file, path.read_bytes())
        assert not reason, f"{path}: {reason}"


def test_failures_are_seen(tmp_path: Path) -> None:
    from suites import fuzz, mutate
    from suites.readers import Reader

    def reader(read: object) -> Reader:
        return Reader("x", read, lambda _: [])  # type: ignore[arg-type]

    def judged(read: object) -> str:
        return fuzz.judge(reader(read), tmp_path / "x", b"x")[1]

    assert "KeyError" in judged(lambda path: {}[1])
    assert "MemoryError" in judged(lambda path: bytes(1 << 30))
    assert judged(lambda path: path.read_bytes()) == ""
    drawn = [mutate.mutated([b"abcdef"], random.Random(i), False) for i in range(50)]
    assert len(set(drawn)) > 40
