"""The compiled programs of a model, the pieces of tokens that there are programs for, and sequences
kept in a file, so that a long prompt need not be taken in again."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy names such as bfloat16
import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import read_input, written_whole
from jq.iree.runtime import Executable, ParameterFiles
from jq.kernels.machine.isa import CHAINS
from jq.language.build import build
from jq.language.decoder.safetensors import read_file, write_arrays
from jq.language.store import MANIFEST, Options, Shape, Store

LONG = 128  # tokens that a program takes in at once, beside the one for a single token
LONG_EVERY = 16  # likewise, where the logits of every token are held
# What programs take, in single tokens: a mean of models whose time is the head's and the layers'.
COSTS, LONG_COST = {1: 1.0, 4: 1.7, 16: 3.35}, 22.0
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
    """The compiled programs of a model; one that is missing is compiled when it is asked for.

    `spare` holds caches that no session has any more, by capacity: new ones take as long as a few
    tokens, for all their memory is written.
    """

    model: Path
    options: Options
    threads: int
    store: Store
    progress: Progress | None = None
    _loaded: dict[Shape, tuple[Executable, dict[str, Any]]] = field(default_factory=dict)
    _files: ParameterFiles | None = None
    _known: list[Path] = field(default_factory=list)
    spare: dict[int, list[Any]] = field(default_factory=dict)

    def can(self, shape: Shape) -> bool:
        """True if there is a program, or one can be compiled."""
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


def rows_of(tokens: Any, batch: int) -> list[np.ndarray]:
    """The tokens of each sequence, i32."""
    nested = isinstance(tokens, (list, tuple)) and any(np.ndim(row) for row in tokens)
    given = tokens if nested else np.asarray(tokens, np.int32).reshape(batch, -1)
    rows = [np.asarray(row, np.int32).reshape(-1) for row in given]
    if len(rows) != batch:
        raise UserError(f"{len(rows)} sequences are given, the model takes {batch} at once")
    return rows


@cache
def cheapest(left: int, costs: tuple[tuple[int, float], ...]) -> int:
    """The first of the sizes whose programs take in `left` tokens for the least cost together.

    Examples:
        >>> cheapest(5, ((1, 1.0), (4, 1.7), (16, 3.35)))
        4
    """

    def cost(n: int) -> tuple[float, int]:
        return min((own + least[max(0, n - size)], -size) for size, own in costs)

    least = [0.0]
    for n in range(1, left + 1):
        least.append(cost(n)[0])
    return -cost(left)[1]


def save_prompt(path: Path, store: Store, tokens: list[int], caches: list[np.ndarray]) -> None:
    """Writes the caches of a sequence, whole or not at all: a safetensors file of `tokens` i32[n],
    `model` u8[32] (a digest of what made the programs), and each cache, cut to its n tokens."""
    arrays = {"tokens": np.array(tokens, np.int32), "model": _model(store)}
    arrays |= {f"cache.{i}": array for i, array in enumerate(caches)}
    with written_whole(path) as temporary:
        write_arrays(temporary, arrays)


def load_prompt(path: Path, store: Store, context: int) -> tuple[list[int], list[np.ndarray]]:
    """The tokens and the caches of a file; `UserError` where it is none, or one of another model or
    of other options."""
    held = read_file(path)
    model, tokens = held.pop("model", None), held.pop("tokens", None)
    names = [f"cache.{i}" for i in range(len(held))]
    sound = tokens is not None and tokens.dtype == np.int32 and tokens.ndim == 1
    if model is None or tokens is None or not sound or set(names) != held.keys():
        raise UserError("this is no file of a prompt", location=str(path))
    if not np.array_equal(model, _model(store)) or not 0 < len(tokens) <= context:
        raise UserError(
            "the prompt was kept by another model, or with other options",
            location=str(path),
            hint="remove the file: it is written again",
        )
    return tokens.tolist(), [held[name] for name in names]


def _model(store: Store) -> np.ndarray:
    """A digest of what changes caches: a folder is named by one, but for one that was moved."""
    sealed = store.folder / MANIFEST
    content = read_input(sealed) if store.sealed else store.folder.name.encode()
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
