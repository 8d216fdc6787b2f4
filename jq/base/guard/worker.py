"""A process of our own that does dangerous work for us: readers that can crash, hang or eat memory.

It is kept warm between requests, since it takes a second to start. A request is a function's name
and its arguments; the answer is what the function returns, or its `UserError`. Whatever else
happens there becomes a `UserError` here: it was the file's doing."""

import importlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from jq.base.errors import JqError, UserError
from jq.base.guard.limits import Reading, limits
from jq.base.system.child import python_command, signal_name
from jq.base.system.children import Child

REQUESTS = 500  # after which a new process is started: MLIR never forgets a type
MORE_TIME = "--timeout allows more (jq.base.guard.limits.limited)"
MORE_MEMORY = "--max-memory allows more (jq.base.guard.limits.limited)"
# To start the process and import a reader, on the slowest machine.
STARTING = Reading(busy=600.0, waiting=600.0, memory=0)
STACK = 4 << 20  # bytes; half of what this process has, so that it crashes there and not here
ANSWER = 8  # an answer may take this part of the memory that its maker may
_MESSAGE = 10_000  # characters of an error


class Worker(Child):
    """The process, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self._imported: set[str] = set()  # modules, by the process
        self._lock = threading.Lock()

    def ask(
        self, function: str, data: bytes, what: str, *, size: int | None = None, **arguments: Any
    ) -> Any:
        """`function(data, **arguments)` over there; `function` is `module:name`.

        Args:
            what: names the data in errors: a path.
            size: of what is read in bytes, where `data` is not all of it.
            arguments: anything that JSON has.

        Raises:
            UserError: the function's own, or it crashed, took too long or too much memory."""
        most = limits().reading(len(data) if size is None else size)
        request = {
            "function": function,
            "arguments": arguments,
            "bytes": len(data),
            "memory": most.memory,
            "busy": most.busy,
        }
        with self._lock:
            self._warmed(function.partition(":")[0])
            answer = self._answer(json.dumps(request).encode() + b"\n" + data, what, most)
        return taken(answer, what)

    def _warmed(self, module: str) -> None:
        """Importing a module is our doing: the time of a file begins after it."""
        self._started()
        if module not in self._imported:
            request = json.dumps({"module": module}).encode() + b"\n"
            taken(self._answer(request, module, STARTING), module)
            self._imported.add(module)

    def _answer(self, request: bytes, what: str, most: Reading) -> dict[str, Any]:
        process = self._process
        assert process is not None
        try:
            line = exchange(process, request, most.waiting)
        except BaseException:  # interrupted: its answer would be taken for that of the next
            self.stop()
            raise
        if line is None:
            self.stop()
            raise _late(most.waiting, what)
        if not line:
            code = process.wait()
            self.stop()
            if code == -signal.SIGXCPU:
                raise _late(most.busy, what)
            raise UserError(f"it cannot be read: {_reason(code)}", location=what)
        return json.loads(line)

    def _started(self) -> None:
        self._asked += 1
        process = self._process if self.pid else None
        if process and (self._asked % REQUESTS == 0 or process.poll() is not None):
            self.stop()
        if not self.pid:
            self._imported.clear()
            self.start(
                python_command("jq.base.guard.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
            )


def taken(answer: dict[str, Any], what: str) -> Any:
    """The value of an answer, or what it says is wrong."""
    if "error" in answer:
        placed = answer["error"].keys() & {"op", "location"}
        raise UserError(**answer["error"], **({} if placed else {"location": what}))
    if "fault" in answer:
        raise UserError(**answer["fault"], location=what)
    return answer["value"]


def exchange(
    process: subprocess.Popen[bytes], data: bytes, seconds: float, most: int | None = None
) -> bytes | None:
    """The line that answers `data`; empty when the process ended, None when it took too long, or
    more than `most` bytes. The pipe stays open."""
    assert process.stdin is not None and process.stdout is not None
    to, back = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(to, False)
    rest, answer, end = memoryview(data), bytearray(), time.monotonic() + seconds
    while not answer.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0:
            return None
        ready = select.select([back], [to] if rest else [], [], left)
        if ready[1]:
            try:
                rest = rest[os.write(to, rest[: 1 << 20]) :]
            except BrokenPipeError:
                rest = rest[:0]
        if ready[0]:
            piece = os.read(back, 1 << 20)
            if not piece:
                return b""
            answer += piece
            if most is not None and len(answer) > most:
                return None
    return bytes(answer)


def _late(seconds: float, what: str) -> UserError:
    return UserError(f"reading it took more than {seconds:.3g} s", location=what, hint=MORE_TIME)


def _reason(code: int) -> str:
    if code < 0:
        return f"its reader crashed ({signal_name(code)}), for it is damaged or nested too deeply"
    return "its reader ended, for it is damaged or takes too much memory"


WORKER = Worker()


# What follows runs in the process.


def main() -> None:
    """Answers requests until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what native code prints is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "module" in request:
            answer = imported(request["module"])
        else:
            answer = answered(request, sys.stdin.buffer.read(request["bytes"]))
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def imported(module: str) -> dict[str, Any]:
    """The answer to a request for a module, in which a reader is."""
    importlib.import_module(module)
    return {"value": None}


def answered(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The answer to a request: what a function returns, or its failure."""
    module, _, name = request["function"].partition(":")
    found = importlib.import_module(module)
    with open("/proc/self/statm", "rb") as file:  # what is there already does not count
        most = int(file.read().split()[0]) * resource.getpagesize() + request["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    # What is busy for longer is ended by a signal, also where it never returns to Python.
    busy = math.ceil(time.process_time() + request["busy"])
    resource.setrlimit(resource.RLIMIT_CPU, (busy, resource.RLIM_INFINITY))
    try:
        value = getattr(found, name)(data, **request["arguments"])
        if (size := len(json.dumps(value))) > (limit := request["memory"] // ANSWER):
            raise UserError(f"it makes {size} bytes, at most {limit} are taken", hint=MORE_MEMORY)
        return {"value": value}
    except JqError as error:
        parts = {"op": error.op, "location": error.location, "hint": error.hint}
        known = {k: v for k, v in parts.items() if v}
        return {"error": {"message": error.message[:_MESSAGE], **known}}
    except MemoryError:
        return {"fault": {"message": "it takes too much memory", "hint": MORE_MEMORY}}
    except BaseException as error:  # a panic of code in Rust is no Exception
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        return {"fault": {"message": f"it cannot be read: {reason:.200}"}}
    finally:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
