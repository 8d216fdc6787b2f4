"""The compiled programs of a model, and the pieces of tokens that there are programs for."""

import hashlib
import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy names such as bfloat16
import numpy as np

from jq.artifact.store import shrink
from jq.base.errors import UserError
from jq.base.progress import Progress, silent
from jq.base.system.files import read_input
from jq.iree.runtime import Executable, ParameterFiles
from jq.kernels.machine.isa import CHAINS
from jq.language.build import build
from jq.language.store import MANIFEST, Described, Options, Shape, described

# Tokens that programs take in at once, and the time of it, in that of single tokens: a mean of
# models whose time is the head's and the layers'.
COSTS = {1: 1.0, 4: 1.7, 16: 3.35, 128: 22.0}
LONG_EVERY = 16  # tokens likewise, where the logits of every token are held
SMALLEST = 512  # tokens that a narrow cache holds at first; it doubles when it is full


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
    """The compiled programs of a model, in a folder; one that is missing is compiled when it is
    asked for, but where the folder is `sealed`.

    `spare` holds caches that no session has any more, by capacity: new ones take as long as a few
    tokens, for all their memory is written."""

    model: Path
    options: Options
    threads: int
    folder: Path
    sealed: bool = False
    progress: Progress = silent
    _loaded: dict[Shape, tuple[Executable, Described]] = field(default_factory=dict)
    _files: ParameterFiles | None = None
    _known: list[Path] = field(default_factory=list)
    spare: dict[int, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sealed and self.folder.is_dir():
            os.utime(self.folder)  # used now

    def identity(self) -> np.ndarray:
        """A digest u8[32] of what changes caches, as in the folder's name unless it was moved."""
        name = self.folder.name.encode()
        content = read_input(self.folder / MANIFEST) if self.sealed else name
        return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)

    def can(self, shape: Shape) -> bool:
        """True if there is a program, or one can be compiled."""
        return not self.sealed or self._described(shape) is not None

    def _described(self, shape: Shape) -> Described | None:
        """Description of a program; None where there is none, or it is damaged."""
        file = self.folder / f"{shape.name}.json"
        with suppress(UserError):
            return described(file) if file.with_suffix(".vmfb").is_file() else None
        return None

    def get(self, shape: Shape) -> tuple[Executable, Described]:
        if shape not in self._loaded:
            found = self._described(shape)
            if found is None and self.sealed:
                what = f"the model was compiled without a program for {shape.name}"
                hint = "give the file that it was compiled from"
                raise UserError(what, location=str(self.folder), hint=hint)
            if found is None:
                self.progress(f"compile for {shape.name}", None)
                build(self.model, self.options, shape, self.folder)
                shrink(self.folder.parent, spared=self.folder)
                found = self._described(shape)
            if found is None:
                reason = "the cache directory does not keep what is written"
                raise UserError(reason, location=str(self.folder))
            archives = sorted(self.folder.glob("*.irpa"))
            if archives != self._known:
                self._files, self._known = ParameterFiles(archives), archives
            module, dtypes = self.folder / f"{shape.name}.vmfb", [t for _, t in found.outputs]
            run = Executable.load(module, self._files, threads=self.threads, dtypes=dtypes)
            self._loaded[shape] = run, found
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
        4"""

    def cost(n: int) -> tuple[float, int]:
        return min((own + least[max(0, n - size)], -size) for size, own in costs)

    least = [0.0]
    for n in range(1, left + 1):
        least.append(cost(n)[0])
    return -cost(left)[1]
