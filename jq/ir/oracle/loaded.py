"""Modules compiled by XLA, run in a child process, which may crash.

`JAXQ_XLA=here` in the environment runs them in this process instead. Where XLA crashes in a child,
the module is compiled once more without optimizations, since XLA's defects are in these; where that
crashes too, an error says so."""

import importlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import jax
import numpy as np

from jq.base.errors import CompilerError, JqError, XlaCrashed
from jq.base.from_jax import check_threads, load_by_xla
from jq.base.system.child import python_command
from jq.base.system.children import Child
from jq.base.system.signals import end_with_parent

Options = Sequence[Mapping[str, str]]
Arrays = Sequence[np.ndarray]
Found = TypeVar("Found")


class Here:
    """A module in this process.

    Args:
        module: MLIR bytecode.
        options: of XLA; the first with which it can compile the module are taken.
        weights: the arguments behind the inputs."""

    def __init__(self, module: bytes, options: Options, weights: Arrays) -> None:
        check_threads()
        self._device = jax.local_devices(backend="cpu")[0]
        self._executable = _compiled(module, tuple(tuple(each.items()) for each in options))
        self._weights = self._put(weights)

    def bind(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Gives weights other values, by their number."""
        for i, array in zip(arrays, self._put(list(arrays.values())), strict=True):
            self._weights[i] = array

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Results as fresh arrays."""
        try:
            results = self._executable.execute_sharded([*self._put(inputs), *self._weights])
        except jax.errors.JaxRuntimeError as error:
            raise _refused("run", error) from error
        parts = results.disassemble_into_single_device_arrays()
        return [np.array(shards[0]) for shards in parts]

    def _put(self, arrays: Arrays) -> list[Any]:
        with jax.enable_x64(True):  # JAX would narrow 64-bit arrays
            given: list[Any] = jax.device_put([np.asarray(a) for a in arrays], self._device)
        return given


@lru_cache(maxsize=32)  # each candidate of a search, each pipeline, asks for the same float program
def _compiled(module: bytes, options: tuple[tuple[tuple[str, str], ...], ...]) -> Any:
    device = jax.local_devices(backend="cpu")[0]
    for chosen in options[:-1]:
        with suppress(jax.errors.JaxRuntimeError):
            return load_by_xla(module, device, dict(chosen))
    try:
        return load_by_xla(module, device, dict(options[-1]))
    except jax.errors.JaxRuntimeError as error:
        raise _refused("compile", error) from error


def _refused(what: str, error: Exception) -> CompilerError:
    return CompilerError(f"XLA cannot {what} the program: {str(error).strip().splitlines()[0]}")


class Apart:
    """A module in the child process, of which a new one is given everything again; after a crash
    it is compiled with the options `plain`, without optimizations."""

    def __init__(self, module: bytes, options: Options, weights: Arrays, plain: Options) -> None:
        self._module, self._options, self._plain = module, options, plain
        self._weights = list(map(np.asarray, weights))
        self._known: tuple[int, int] | None = None  # the process, and our number there
        self._safely(self._opened)

    def bind(self, arrays: Mapping[int, np.ndarray]) -> None:
        for i, array in arrays.items():
            self._weights[i] = np.asarray(array)
        self._safely(lambda: _PROCESS.ask("bind", self._opened(), dict(arrays)))

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        found: list[np.ndarray] = self._safely(lambda: _PROCESS.ask("run", self._opened(), inputs))
        return found

    def _opened(self) -> int:
        """Our number in the process that there is now."""
        if self._known is None or self._known[0] != _PROCESS.pid:
            number = _PROCESS.ask("open", 0, self._module, self._options, self._weights)
            self._known = _PROCESS.pid, number
            weakref.finalize(self, _PROCESS.forget, *self._known).atexit = False
        return self._known[1]

    def _safely(self, ask: Callable[[], Any]) -> Any:
        with _PROCESS.lock:  # numbers are those of one process: no other thread may start the next
            try:
                return ask()
            except XlaCrashed as error:
                if self._options == self._plain:
                    raise
                self._options = self._plain
                said = f"{error.message}: from now on it computes this without optimizations"
                warnings.warn(said, stacklevel=2)
                return ask()


class _Process(Child):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self._forgotten: list[int] = []  # numbers that nobody has any more

    def forget(self, pid: int, number: int) -> None:
        if pid == self.pid:
            self._forgotten.append(number)

    def ask(self, what: str, number: int, *arguments: Any) -> Any:
        """An answer of `_answer`; `XlaCrashed` where the process has ended."""
        with self.lock:
            if not self.pid:
                self.open()
            forgotten, self._forgotten = self._forgotten, []
            try:
                _send(self._pipe, (what, number, arguments, forgotten))
                answer = _received(self._pipe)
            except (EOFError, OSError) as error:
                raise XlaCrashed(self.stop()) from error
            except BaseException:  # interrupted: its answer would be taken for that of the next
                self.stop()
                raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def open(self, *modules: str) -> None:
        """Starts it; it imports these modules meanwhile."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.start(
                python_command(__name__, str(theirs.fileno()), str(os.getpid()), *modules),
                **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL),
                pass_fds=[theirs.fileno()],
                env=os.environ | {"JAX_PLATFORMS": "cpu", VARIABLE: "here"},
            )
        self._pipe, self._forgotten = Connection(ours.detach()), []

    def stop(self) -> int:
        if self.pid:
            self._pipe.close()
        return super().stop()


_PROCESS = _Process()
VARIABLE = "JAXQ_XLA"


def load(module: bytes, options: Options, weights: Arrays, plain: Options) -> Here | Apart:
    """Loaded in the process that the environment names."""
    if os.environ.get(VARIABLE) == "here":
        return Here(module, options, weights)
    return Apart(module, options, weights, plain)


def warm(*modules: str) -> None:
    """The child process is started, if there is none, and imports these modules."""
    with _PROCESS.lock:
        if not _PROCESS.pid:
            _PROCESS.open(*modules)


def call_apart(function: Callable[..., Found], *arguments: Any) -> Found:
    """A function of a module of ours, computed in the child; `XlaCrashed` where that ended."""
    found: Found = _PROCESS.ask("call", 0, function, *arguments)
    return found


def _send(pipe: Connection, message: Any) -> None:
    """The buffers of arrays go beside what is pickled, as they are."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, 5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    pipe.send((head, [part.nbytes for part in parts]))
    for part in parts:
        pipe.send_bytes(part)


def _received(pipe: Connection) -> Any:
    head, sizes = pipe.recv()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        pipe.recv_bytes_into(buffer)
    return pickle.loads(head, buffers=buffers)


# What follows runs in the process.


def main(handle: str, parent: str, *modules: str) -> None:
    """Answers requests until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_parent(int(parent))
    pipe, loaded = Connection(int(handle)), dict[int, Here]()
    for module in modules:
        importlib.import_module(module)
    with suppress(EOFError, OSError):
        while True:
            what, number, arguments, forgotten = _received(pipe)
            for each in forgotten:
                loaded.pop(each, None)
            _send(pipe, _answer(loaded, what, number, arguments))
    os._exit(0)


def _answer(loaded: dict[int, Here], what: str, number: int, arguments: Sequence[Any]) -> Any:
    """The number of what was opened, results, or the error."""
    try:
        if what == "call":
            function, *given = arguments
            return function(*given)
        if what != "open":
            return getattr(loaded[number], what)(*arguments)
        number = max(loaded, default=0) + 1
        loaded[number] = Here(*arguments)
        return number
    except (JqError, MemoryError) as error:
        return error
    except Exception as error:
        return CompilerError(f"XLA's process failed: {type(error).__name__}: {error}")
