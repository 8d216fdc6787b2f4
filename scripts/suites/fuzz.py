"""Reads mutated files in a process that may crash, and says what went wrong on which.

Mutation `i` of a reader follows from the seed and `i` alone, so that a crash is found again.

A process that has imported everything is forked, and its copy reads one file after another until
it dies. What `jq.base.guard` has done in a process of its own is done in the copy, within the
guard's
limits: there it may crash, for the guard makes an error of it. Behind the guard it may not.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import random
import resource
import select
import signal
import struct
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.limits import limits
from jq.base.guard.worker import STACK, Worker, answered, taken
from suites.mutate import mutated
from suites.readers import READERS, Reader

# A file's limits: seconds of the processor; memory, by its size and besides.
SECONDS, TIMES, BESIDES = 5, 4, 256 << 20
BUSY = 1  # seconds of the processor behind the guard, which allows 5: who takes one takes them all
STUCK = 60  # seconds without a step, of a process that waits for something
MEMORY = Path("/dev/shm")  # a file on a disk takes longer to write than to read
_BLOCK = 1000  # mutations of a process: MLIR never forgets a type
_STATE = struct.Struct("<qqqq")  # the mutation, whether the guard has it, tried, read
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Failure:
    """An offence of a reader on mutation `index`."""

    reader: str
    index: int
    reason: str


@dataclass
class Count:
    """Attributes:
    read: that were valid all the same.
    guarded: what became of those that died or were too slow in the guard, by mutation.
    """

    tried: int = 0
    read: int = 0
    guarded: dict[int, str] = field(default_factory=dict)


def mutation(reader: str, seeds: list[bytes], seed: int, index: int) -> bytes:
    draw = random.Random(f"{reader} {seed} {index}")
    return mutated(seeds, draw, READERS[reader].json)


def seeds_of(reader: str, corpus: Path | None) -> list[bytes]:
    """Valid files, and what failed once."""
    with temporary() as folder:
        found = READERS[reader].seeds(folder)
    if corpus is not None and not READERS[reader].json:
        found += [path.read_bytes() for path in sorted((corpus / reader).glob("*"))]
    return found


@contextmanager
def temporary() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as name:
        yield Path(name)


def judge(reader: Reader, path: Path, data: bytes) -> tuple[bool, str]:
    """True where the file was read, and the fault in how it was refused."""
    path.write_bytes(data)
    start = time.process_time()
    try:
        with _memory(TIMES * len(data) + BESIDES):
            reader.read(path)
        read, reason = True, ""
    except UserError as error:
        read, reason = False, "" if str(error).strip() else "an error that says nothing"
    except BaseException as error:
        read, reason = False, f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    spent = time.process_time() - start
    if not reason and spent > SECONDS and not reader.guarded:
        reason = f"{spent:.1f} s"
    return read, reason


@contextmanager
def _memory(more: int) -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, _ = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, resource.RLIM_INFINITY))


class _Copy:
    """The process that reads a block of mutations, and what it tells: where it is in memory that
    both see, failures through a pipe."""

    def __init__(self, name: str, seeds: list[bytes], seed: int, block: range) -> None:
        self.shared = mmap.mmap(-1, _STATE.size)
        self.told, there = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            with suppress(BaseException):
                self._work(name, seeds, seed, block, there)
            os._exit(0)
        os.close(there)

    def _work(self, name: str, seeds: list[bytes], seed: int, block: range, there: int) -> None:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Worker.ask = _asked(self)  # type: ignore[method-assign]
        reader = READERS[name]
        with temporary() as folder:
            path = folder / reader.file
            path.write_bytes(seeds[0])
            self.tell(-1, 0, 0, 0)
            with suppress(UserError):  # what is imported at first use counts for no mutation
                reader.read(path)
            for tried, index in enumerate(block):
                self.tell(index, 0, tried, self.state()[3])
                read, reason = judge(reader, path, mutation(name, seeds, seed, index))
                self.tell(index, 0, tried + 1, self.state()[3] + read)
                if reason:
                    os.write(there, json.dumps([index, reason]).encode() + b"\n")
        self.tell(block.stop, 0, len(block), self.state()[3])

    def tell(self, *state: int) -> None:
        _STATE.pack_into(self.shared, 0, *state)

    def state(self) -> tuple[int, ...]:
        """The mutation, whether the guard has it, how many were tried, how many read."""
        return _STATE.unpack_from(self.shared)

    def failures(self) -> Iterator[tuple[int, str]]:
        """Those that it tells, until it ends or is stuck at one and ended."""
        rest, since = b"", (0.0, 0.0)
        at: tuple[int, ...] = (-2, 0)
        while True:
            ready, _, _ = select.select([self.told], [], [], 0.2)
            if ready:
                piece = os.read(self.told, 1 << 16)
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                yield from ((index, reason) for index, reason in map(json.loads, lines))
            here, now = self.state()[:2], (self._spent(), time.monotonic())
            if here != at or here[0] < 0:
                at, since = here, now
            elif now[0] - since[0] > SECONDS or now[1] - since[1] > STUCK:
                os.kill(self.pid, 9)

    def _spent(self) -> float:
        """Seconds of the processor."""
        with suppress(OSError), open(f"/proc/{self.pid}/stat") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / _TICK
        return 0.0

    def end(self) -> int:
        """Its exit code."""
        os.close(self.told)
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _asked(copy: _Copy) -> Any:
    """In place of `Worker.ask`: what it would do over there, done here."""

    def ask(
        _: Worker, function: str, data: bytes, what: str, *, size: int | None = None, **rest: Any
    ) -> Any:
        memory = limits().reading(len(data) if size is None else size).memory
        index, _seen, tried, read = copy.state()
        copy.tell(index, 1, tried, read)
        stack = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, stack[1]))
        request = {"function": function, "memory": memory, "busy": BUSY, "arguments": rest}
        answer = json.loads(json.dumps(answered(json.loads(json.dumps(request)), data)))
        resource.setrlimit(resource.RLIMIT_STACK, stack)
        copy.tell(index, 0, tried, read)
        return taken(answer, what)

    return ask


def fuzz(
    name: str, seed: int, indices: range, corpus: Path | None, counted: Count, until: float
) -> Iterator[Failure]:
    """Failures among some mutations of a reader, while time is left."""
    seeds, at = apart(name, corpus), indices.start
    while at < indices.stop and time.monotonic() < until:
        block = range(at, min(at + _BLOCK, indices.stop))
        copy = _Copy(name, seeds, seed, block)
        for index, reason in copy.failures():
            yield Failure(name, index, reason)
        index, guarded, tried, read = copy.state()
        code = copy.end()
        counted.tried, counted.read = counted.tried + tried, counted.read + read
        if index < block.start:
            yield Failure(name, block.start, f"a valid file ends the process: {code}")
            return
        at = index + 1
        if index == block.stop:
            at = block.stop
            continue
        counted.tried += 1
        late = {-signal.SIGKILL: SECONDS, -signal.SIGXCPU: BUSY}
        reason = f"more than {late[code]} s" if code in late else f"the process ended: {code}"
        if guarded:
            counted.guarded[index] = reason
        else:
            yield Failure(name, index, reason)


def apart(name: str, corpus: Path | None) -> list[bytes]:
    """Seeds, made by another process: who makes them may start threads, which no copy survives."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(seeds_of, name, corpus).result()
