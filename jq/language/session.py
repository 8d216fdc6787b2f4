"""A sequence in the making: programs of several lengths over one cache of keys and values."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy names such as bfloat16
import numpy as np

from jq.errors import UserError
from jq.iree.runtime import Executable, ParameterFiles
from jq.kernels.machine.isa import CHAINS
from jq.language.build import build
from jq.language.store import Options, Shape, Store

LONG = 128  # tokens that a program takes in at once, beside the one for a single token
LONG_EVERY = 16  # likewise, where the logits of every token are held
FEW = 8  # this part of a long program costs what as many single tokens do
SMALLEST = 512  # tokens that a narrow cache holds at first; it doubles when it is full

Progress = Callable[[str], None]


def capacities(options: Options) -> list[int]:
    """The sizes in tokens that caches of keys and values have one after the other, ascending."""
    # float32 is read only as far as it is filled; others are converted as a whole.
    room = math.ceil(options.context / CHAINS) * CHAINS
    found = [room if options.cache == "float32" else min(SMALLEST, room)]
    while found[-1] < room:
        found.append(min(2 * found[-1], room))
    return found


@dataclass
class Programs:
    """The compiled programs of a model; one that is missing is compiled when it is asked for."""

    model: Path
    options: Options
    threads: int
    store: Store
    progress: Progress | None = None
    _loaded: dict[Shape, tuple[Executable, dict[str, Any]]] = field(default_factory=dict)
    _files: ParameterFiles | None = None
    _known: list[Path] = field(default_factory=list)

    def can(self, shape: Shape) -> bool:
        """Whether there is a program, or one can be compiled."""
        return not self.store.sealed or self.store.described(shape) is not None

    def get(self, shape: Shape) -> tuple[Executable, dict[str, Any]]:
        if shape not in self._loaded:
            described = self.store.described(shape)
            if described is None and self.store.sealed:
                raise UserError(
                    f"the model was compiled without a program for {shape.name}",
                    location=str(self.store.folder),
                    hint="give the file that it was compiled from",
                )
            if described is None:
                if self.progress:
                    self.progress(f"compile for {shape.name}")
                build(self.model, self.options, shape, self.store)
                described = self.store.described(shape)
                if described is None:
                    raise UserError(
                        "the cache directory does not keep what is written",
                        location=str(self.store.folder),
                    )
            archives = self.store.archives()
            if archives != self._known:
                self._files, self._known = ParameterFiles(archives), archives
            dtypes = [dtype for _, dtype in described["outputs"]]
            run = Executable.load(
                self.store.program(shape), self._files, threads=self.threads, dtypes=dtypes
            )
            self._loaded[shape] = run, described
        return self._loaded[shape]


class Session:
    """Sequences that are taken in from the left, `options.batch` of them side by side.

    `position` counts the tokens so far, `seconds` how long they took to compute, without what
    loading and compiling took. Not safe to share between threads.
    """

    def __init__(self, programs: Programs) -> None:
        self.programs, self.options = programs, programs.options
        self.position, self.seconds = 0, 0.0
        self.capacity, *self._larger = capacities(self.options)
        self._caches: list[Any] | None = None
        self._run: Executable | None = None  # the last program, which can read the caches

    def take(self, tokens: Sequence[int] | np.ndarray, every: bool = False) -> np.ndarray:
        """Takes in tokens [n] or i32[batch, n]; the logits f32[batch, vocabulary] after the last,
        or those after each f32[batch, n, vocabulary].

        Raises:
            UserError: they do not fit into the context; nothing has been taken in then.
        """
        tokens = np.asarray(tokens, np.int32).reshape(self.options.batch, -1)
        count = tokens.shape[1]
        if not count:
            raise UserError("there is no token to take in")
        if self.position + count > self.options.context:
            raise UserError(
                f"{self.position + count} tokens do not fit into a context of"
                f" {self.options.context}",
                hint="give a larger context, or a shorter prompt",
            )
        rows = []
        while tokens.shape[1]:
            size = self._length(tokens.shape[1], every)
            piece, tokens = tokens[:, :size], tokens[:, size:]
            rows.append(self._piece(piece, size, every))
        return np.concatenate(rows, axis=1) if every else rows[-1][:, 0]

    def caches(self) -> list[np.ndarray]:
        """Keys and values [batch, capacity, kv_heads, head], layer by layer, filled in front of
        `position`; none before the first token."""
        if self._caches is None or self._run is None:
            return []
        return [self._run.fetch(view) for view in self._caches]

    def _length(self, left: int, every: bool) -> int:
        """How many tokens the next program takes: those of the long one, unless single tokens take
        less time.

        A short prompt hence needs no program but the one that generates.
        """
        long = LONG_EVERY if every else LONG
        fits = self.position + long <= self.options.context
        if every and not self.programs.can(Shape(long, self.capacity, every)):
            return 1
        return long if fits and left > long // FEW else 1

    def _piece(self, tokens: np.ndarray, length: int, every: bool) -> np.ndarray:
        every = every and length > 1  # of a single token they are the last one's
        self._reserve(self.position + length)
        run, described = self.programs.get(Shape(length, self.capacity, every))
        if self._caches is None:
            shapes = described["inputs"][2 if every else 3 :]
            self._caches = [run.place(np.zeros(shape, np.dtype(dtype))) for shape, dtype in shapes]
        self._run = run
        count = tokens.shape[1]
        # What is padded here lies after all that is read, and is written over later.
        padded = np.zeros((len(tokens), length), np.int32)
        padded[:, :count] = tokens
        scalars = [np.int32(self.position)] + ([] if every else [np.int32(count - 1)])
        start = time.perf_counter()
        inputs = [run.place(padded), *(run.place(np.asarray(s)) for s in scalars)]
        logits, *self._caches = run.call_placed(*inputs, *self._caches)
        self.position += count
        found = run.fetch(logits)
        self.seconds += time.perf_counter() - start
        return found[:, :count] if every else found

    def _reserve(self, count: int) -> None:
        """Moves the caches into larger ones when they could not hold `count` tokens."""
        if count <= self.capacity:
            return
        while self.capacity < count:
            self.capacity = self._larger.pop(0)
        if self._caches is None or self._run is None:
            return
        grown = []
        for view in self._caches:
            old = self._run.fetch(view)
            larger = np.zeros((old.shape[0], self.capacity, *old.shape[2:]), old.dtype)
            larger[:, : old.shape[1]] = old
            grown.append(self._run.place(larger))
        self._caches = grown
