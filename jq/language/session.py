"""A sequence in the making: programs of several lengths over one cache of keys and values."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import written_whole
from jq.frontends.safetensors import read_file, write_model
from jq.iree.runtime import Executable
from jq.language.programs import COSTS, LONG_EVERY, Programs, capacities, cheapest, rows_of
from jq.language.store import Shape

KEPT = 4  # states that a session can go back to


class Session:
    """Sequences that are taken in from the left, `options.batch` of them side by side.

    `positions` i32[batch] counts the tokens so far of each, `seconds` how long they took to
    compute, without what loading and compiling took. Not safe to share between threads."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.options = programs, programs.options
        self.positions, self.seconds = np.zeros(self.options.batch, np.int32), 0.0
        self._taken: list[list[int]] = [[] for _ in range(self.options.batch)]
        self.capacity, *self._larger = capacities(self.options)
        self._caches: list[Any] | None = None
        self._run: Executable | None = None  # the last program, which can read the caches
        # Of each cache, whether it holds all tokens; states that do not are kept at some positions.
        self._grows: list[bool] = []
        self._kept: dict[int, list[np.ndarray]] = {}
        self._logits = np.zeros(0, np.float32)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if ending():  # what NumPy is made of may be gone
            return
        # What a mask hides is multiplied by 0, which NaN and infinity do not forgive.
        caches: list[Any] | None = getattr(self, "_caches", None)  # none where it was refused
        if caches and np.isfinite(self._logits).all():
            self.programs.spare[self.capacity] = caches

    @property
    def position(self) -> int:
        """Tokens so far, of the longest sequence."""
        return int(self.positions.max())

    def take(
        self, tokens: Sequence[int] | Sequence[Sequence[int]] | np.ndarray, every: bool = False
    ) -> np.ndarray:
        """Takes in tokens [n], i32[batch, n], or a list for each sequence, of any lengths; the
        logits f32[batch, vocabulary] after the last of each, NaN where there is none, or those
        after each f32[batch, n, vocabulary]: those that each sequence would have alone.

        Raises:
            UserError: they do not fit into the context; nothing has been taken in then."""
        rows = rows_of(tokens, self.options.batch)
        counts = np.array([len(row) for row in rows], np.int32)
        if not counts.any():
            raise UserError("there is no token to take in")
        if every and (counts != counts[0]).any():
            raise UserError("the logits of every token are of sequences of the same length")
        longest = int((self.positions + counts)[counts > 0].max())
        if longest > self.options.context:
            what = f"{longest} tokens do not fit into a context of {self.options.context}"
            raise UserError(what, hint="give a larger context, or a shorter prompt")
        found: list[np.ndarray] = []
        last = np.full((len(rows), 1), np.nan, np.float32)
        several = longest - self.position > 1
        while counts.any():
            size = self._length(int(counts.max()), every)
            taken = np.minimum(counts, size)
            logits = self._piece([row[:size] for row in rows], size, every)
            rows, counts = [row[size:] for row in rows], counts - taken
            if every:
                found.append(logits)
            elif taken.all():
                last = logits[:, 0]
            else:
                last = np.where((taken > 0)[:, None], logits[:, 0], last)
        if several:
            self._keep()
        return np.concatenate(found, axis=1) if every else last

    def resume(self, tokens: Sequence[int]) -> list[int]:
        """Goes back to where the only sequence and `tokens` part, and returns those of them that
        are left to take in: the last one at least, for its logits."""
        (taken,) = self._taken
        pairs = zip(taken, tokens[:-1], strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        same = min(len(taken), len(tokens) - 1) if same is None else same
        if same < len(taken) and not all(self._grows):
            same = self._go_back(same)
        self.positions[:], self._taken = same, [taken[:same]]
        return list(tokens[same:])

    def _keep(self) -> None:
        """Keeps the states of the only sequence that do not hold all tokens."""
        if len(self._taken) > 1 or all(self._grows) or self._run is None or not self._caches:
            return
        views = zip(self._caches, self._grows, strict=True)
        states = [self._run.fetch(view) for view, grows in views if not grows]
        self._kept = dict([*self._kept.items(), (self.position, states)][-KEPT:])

    def _go_back(self, most: int) -> int:
        """Takes states that were kept at `most` tokens or before; without any the sequence begins
        anew. Returns how many tokens they have taken."""
        self._kept = {at: states for at, states in self._kept.items() if at <= most}
        at = max(self._kept, default=0)
        if at and self._run is not None and self._caches:
            still = np.flatnonzero(~np.array(self._grows))
            for i, state in zip(still, self._kept[at], strict=True):
                self._caches[i] = self._run.place(state)
        return at

    def caches(self) -> list[np.ndarray]:
        """Keys and values [batch, capacity, kv_heads, head], layer by layer, filled in front of
        `position`, and other states; none before the first token."""
        if self._caches is None or self._run is None:
            return []
        return [self._run.fetch(view) for view in self._caches]

    def save(self, path: str | Path) -> None:
        """Keeps the only sequence in a file, for `restore` of a session of the same model, whole or
        not at all: in safetensors `tokens` i32[n], `model` u8[32] (see `Programs.identity`), and
        each cache, cut to its n tokens."""
        (taken,) = self._taken
        if not taken:
            raise UserError("there is no token to keep")
        arrays = {"tokens": np.array(taken, np.int32), "model": self.programs.identity()}
        for i, (array, grows) in enumerate(zip(self.caches(), self._grows, strict=True)):
            arrays[f"cache.{i}"] = array[:, : self.position] if grows else array
        with written_whole(Path(path)) as temporary:
            write_model(temporary, arrays)

    def restore(self, path: str | Path) -> None:
        """Takes in what `save` kept, instead of all that was taken in so far; `UserError` where the
        file is none, or one of another model, or of other options."""
        where, held = str(path), read_file(Path(path))
        model, tokens = held.pop("model", None), held.pop("tokens", None)
        if model is None or tokens is None or tokens.dtype != np.int32 or tokens.ndim != 1:
            raise UserError("this is no file of a prompt", location=where)
        same = np.array_equal(model, self.programs.identity())
        if not same or not 0 < len(tokens) <= self.options.context:
            what = "the prompt was kept by another model, or with other options"
            raise UserError(what, location=where, hint="remove the file: it is written again")
        sizes = [c for c in capacities(self.options) if c >= len(tokens)]
        run, described = self.programs.get(Shape(1, sizes[0]))
        caches = [np.zeros(shape, np.dtype(dtype)) for shape, dtype in described.states]
        parts = {
            f"cache.{i}": whole[:, : len(tokens)] if grows else whole
            for i, (whole, grows) in enumerate(zip(caches, described.grows, strict=True))
        }
        if _kinds(held) != _kinds(parts):
            raise UserError("the caches are of other shapes", location=where)
        for name, part in parts.items():
            part[...] = held[name]
        self.capacity, *self._larger = sizes
        self._caches, self._run = [run.place(whole) for whole in caches], run
        self._grows, self._kept = described.grows, {}
        self._taken, self.positions[:] = [tokens.tolist()], len(tokens)
        self._keep()

    def _length(self, left: int, every: bool) -> int:
        """Number of tokens for the next program: those that take the least time together. What it
        writes for sequences that have no more tokens must fit, too."""
        here = self.positions[self.positions < self.options.context]
        room = self.options.context - int(here.max())
        if every:
            can = self.programs.can(Shape(LONG_EVERY, self.capacity, every))
            return LONG_EVERY if can and room >= LONG_EVERY and left > 1 else 1
        costs = {
            size: cost
            for size, cost in COSTS.items()
            if size == 1 or (size <= room and self.programs.can(Shape(size, self.capacity)))
        }
        longest = max(costs)
        return longest if left >= longest else cheapest(left, tuple(costs.items()))

    def _piece(self, rows: list[np.ndarray], length: int, every: bool) -> np.ndarray:
        """The logits of a program of `length`, which takes at most so many tokens of each row."""
        counts = np.array([len(row) for row in rows], np.int32)
        apart = any((x != x[0]).any() for x in (self.positions, counts))
        every = every and length > 1  # of a single token they are the last one's
        self._reserve(min(self.position + length, self.options.context))  # one may be full
        run, described = self.programs.get(Shape(length, self.capacity, every, apart))
        if self._caches is None:
            self._caches = self.programs.spare.pop(self.capacity, None)
        if self._caches is None:
            self._caches = [run.place(np.zeros(s, np.dtype(t))) for s, t in described.states]
        self._run, self._grows = run, described.grows
        # What is padded here lies after all that is read, and is written over later.
        padded = np.zeros((len(rows), length), np.int32)
        for to, row in zip(padded, rows, strict=True):
            to[: len(row)] = row
        last = np.maximum(counts - 1, 0)
        given = [self.positions, *[counts] * (not all(self._grows)), *[last] * (not every)]
        scalars = [x if apart else x[0] for x in given]
        start = time.perf_counter()
        inputs = [run.place(padded), *(run.place(np.asarray(s)) for s in scalars)]
        logits, *self._caches = run.call_placed(*inputs, *self._caches)
        self.positions = self.positions + counts
        for taken, row in zip(self._taken, rows, strict=True):
            taken += row.tolist()
        found = self._logits = run.fetch(logits, copy=False)  # as long as a vocabulary
        self.seconds += time.perf_counter() - start
        return found[:, : counts.max()] if every else found

    def _reserve(self, count: int) -> None:
        """Moves the caches into larger ones when they could not hold `count` tokens."""
        if count <= self.capacity:
            return
        while self.capacity < count:
            self.capacity = self._larger.pop(0)
        if self._caches is None or self._run is None:
            return
        for i in np.flatnonzero(self._grows):
            old = self._run.fetch(self._caches[i])
            larger = np.zeros((old.shape[0], self.capacity, *old.shape[2:]), old.dtype)
            larger[:, : old.shape[1]] = old
            self._caches[i] = self._run.place(larger)


def _kinds(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}
