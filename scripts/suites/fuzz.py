"""Reads mutated files in a process that may crash, and says what went wrong on which.

Mutation `i` of a reader follows from the seed and `i` alone, so that a crash is found again.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

from jq.errors import UserError
from suites.mutate import mutated
from suites.readers import READERS, Reader

SECONDS, TIMES, BESIDES = 5, 4, 256 << 20  # a file's limits: time; memory, by its size and besides
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["suites.readers"])
_BLOCK = 2000  # mutations of a process


@dataclass(frozen=True)
class Failure:
    """What a reader did on mutation `index` that it must not do."""

    reader: str
    index: int
    reason: str


@dataclass
class Count:
    tried: int = 0
    read: int = 0  # that were valid all the same


def mutation(reader: str, seeds: list[bytes], seed: int, index: int) -> bytes:
    draw = random.Random(f"{reader} {seed} {index}")
    return mutated(seeds, draw, READERS[reader].json)


def seeds_of(reader: str, corpus: Path | None) -> list[bytes]:
    """Valid files, and what failed once."""
    with tempfile.TemporaryDirectory() as folder:
        found = READERS[reader].seeds(Path(folder))
    if corpus is not None and not READERS[reader].json:
        found += [path.read_bytes() for path in sorted((corpus / reader).glob("*"))]
    return found


def judge(reader: Reader, path: Path, data: bytes) -> tuple[bool, str]:
    """Whether the file was read, and what was wrong with how it was refused."""
    path.write_bytes(data)
    start = time.perf_counter()
    try:
        with _limited(len(data), reader.guarded):
            reader.read(path)
        read, reason = True, ""
    except UserError as error:
        read, reason = False, "" if str(error).strip() else "an error that says nothing"
    except BaseException as error:
        read, reason = False, f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    spent = time.perf_counter() - start
    if not reason and spent > SECONDS and not reader.guarded:
        reason = f"{spent:.1f} s"
    return read, reason


class _limited:
    """Time, and memory of this process; a reader of its own process has its own limits."""

    def __init__(self, size: int, guarded: bool) -> None:
        self.size, self.guarded = size, guarded

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, _late)
        signal.alarm(80 if self.guarded else SECONDS)
        if not self.guarded:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + TIMES * self.size + BESIDES
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def _work(name: str, seeds: list[bytes], seed: int, indices: range, answers: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / READERS[name].file
        path.write_bytes(seeds[0])
        with suppress(UserError):  # what is imported at first use counts for no mutation
            READERS[name].read(path)
        for index in indices:
            answers.send((index, None, None))
            data = mutation(name, seeds, seed, index)
            answers.send((index, *judge(READERS[name], path, data)))
    answers.send(None)


def fuzz(
    name: str, seed: int, count: int, corpus: Path | None, counted: Count, until: float
) -> Iterator[Failure]:
    """Failures among mutations 0 to `count` of a reader, while time is left."""
    seeds, at = seeds_of(name, corpus), 0
    while at < count and time.monotonic() < until:
        indices = range(at, min(at + _BLOCK, count))
        here, there = _FORKED.Pipe(False)
        process = _FORKED.Process(target=_work, args=(name, seeds, seed, indices, there))
        process.start()
        there.close()
        for index, read, reason in _answers(here, process):
            at = index + 1
            if reason is None:
                continue
            counted.tried, counted.read = counted.tried + 1, counted.read + bool(read)
            if reason:
                yield Failure(name, index, reason)
            if time.monotonic() > until:
                break
        process.kill()
        process.join()


def _answers(here: Connection, process: multiprocessing.Process) -> Iterator[tuple]:
    last = None
    while here.poll(90):
        with suppress(EOFError):
            answer = here.recv()
            if answer is None:
                return
            last = answer[0] if answer[2] is None else None
            yield answer
            continue
        process.join()
        if last is not None:
            yield last, False, f"the process ended: {process.exitcode}"
        return
    yield last, False, "it hangs"
