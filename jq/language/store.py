"""Compiled programs and packed weights of a language model, kept between runs.

A folder holds what one model file and one set of options gave with this compiler on this processor:

    1x512.vmfb, 1x512.json   a program for 1 token and a cache of 512, and what it takes and gives
    1x512.irpa               the weights that no program before it had stored

Weights are found by their content, so that programs of all lengths share them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jq.base.data
from jq.base.errors import UserError
from jq.base.system.cache_folder import cache_folder, make_private
from jq.base.system.files import read_text, sha256, written_whole
from jq.base.system.processor import this_processor
from jq.frontends.gguf.split import parts_of
from jq.language.decoder.safetensors import json_object

LIMIT = 24 << 30  # bytes of all folders
_PACKAGES = ("iree-base-compiler", "iree-base-runtime", "jax", "numpy")


@dataclass(frozen=True)
class Options:
    """What changes the programs of a model.

    Attributes:
        pipeline: a pipeline's name; products of weights in blocks of a file keep those.
        cache: type of keys and values that are kept: "float32", "bfloat16" or "int8".
        context: the largest number of tokens, prompt included.
        batch: sequences that go side by side.
    """

    pipeline: str = "int8-dynamic"
    cache: str = "float32"
    context: int = 4096
    batch: int = 1


@dataclass(frozen=True)
class Shape:
    """The sizes of a program: tokens that it takes in at once, the cache's capacity, whether it
    gives the logits of every token, not of one alone, and whether sequences are `apart`, each at a
    position of its own."""

    count: int
    capacity: int
    every: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        more = "-every" * self.every + "-apart" * self.apart
        return f"{self.count}x{self.capacity}{more}"


@dataclass(frozen=True)
class Store:
    """A folder of programs; to a `sealed` one nothing is added later."""

    folder: Path
    sealed: bool = False

    @classmethod
    def of(cls, model: Path, options: Options, root: Path | None = None) -> Store:
        """The folder for a model with options; `root` instead of the user's cache directory."""
        root = root or cache_folder("language")
        context = {
            "options": asdict(options),
            "model": _digest(model, root),
            "compiler": [version(name) for name in _PACKAGES] + _own_code(),
            "processor": sorted(asdict(this_processor()).items(), key=str),
        }
        key = hashlib.sha256(json.dumps(context, default=sorted).encode()).hexdigest()[:32]
        return cls(root / key)

    def program(self, shape: Shape) -> Path:
        return self.folder / f"{shape.name}.vmfb"

    def described(self, shape: Shape) -> dict[str, Any] | None:
        """What a program takes and gives; None where there is none, or its description is
        damaged."""
        try:
            found = described(self.folder / f"{shape.name}.json")
        except UserError:
            return None
        return found if self.program(shape).is_file() else None

    def archives(self) -> list[Path]:
        return sorted(self.folder.glob("*.irpa"))

    def shrink(self, limit: int = LIMIT) -> None:
        """Removes the folders that were not used for longest, but never this one."""
        if self.sealed:
            return
        entries = []
        for folder in self.folder.parent.iterdir():
            if folder.is_dir() and folder != self.folder:
                size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
                entries.append((folder.stat().st_mtime_ns, size, folder))
        own = sum(f.stat().st_size for f in self.folder.iterdir() if f.is_file())
        excess = own + sum(size for _, size, _ in entries) - limit
        for _, size, folder in sorted(entries):
            if excess <= 0:
                return
            shutil.rmtree(folder, ignore_errors=True)
            excess -= size

    def touch(self) -> None:
        if not self.sealed and self.folder.is_dir():
            os.utime(self.folder)


def described(path: Path) -> dict[str, Any]:
    """The description of a program: `inputs` and `outputs` as shape and type, and the `cpu` that it
    needs, as architecture and features.

    Raises:
        UserError: it cannot be read, or is none.
    """
    found = json_object(path)
    try:
        architecture, features = found["cpu"]
        sound = all(isinstance(text, str) for text in (architecture, *features))
        sound &= all(map(_is_tensor, (*found["inputs"], *found["outputs"])))
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UserError("not the description of a language model's program", location=str(path))
    return found


def _is_tensor(given: Any) -> bool:
    shape, dtype = given
    sizes = all(type(n) is int and 0 <= n < 1 << 31 for n in shape)
    return sizes and dtype in ("float32", "bfloat16", "float16", "int8", "int32")


def _digest(model: Path, root: Path) -> str:
    """The digest of the bytes of the model's files; kept with their sizes and times, for they are
    large."""
    files = sorted(p for p in model.iterdir() if p.is_file()) if model.is_dir() else parts_of(model)
    try:
        facts = [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(model)) from error
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    memo = root / "digests" / name
    with suppress(UserError):
        if re.fullmatch("[0-9a-f]{64}", known := read_text(memo, 64)):
            return known
    whole = hashlib.sha256()
    for file in files:
        if not model.is_dir() or file.suffix in (".gguf", ".safetensors", ".json"):
            whole.update(f"{file.name} {sha256(file)}\n".encode())
    with suppress(OSError, UserError):  # it is found anew each time then
        make_private(memo.parent)
        with written_whole(memo) as temporary:
            temporary.write_text(whole.hexdigest(), encoding="utf-8")
    return whole.hexdigest()


def _own_code() -> list[Any]:
    """The digest of this package's own files: another version may compile otherwise."""
    own = Path(jq.base.data.__file__).parents[1]
    facts = [(str(p.relative_to(own)), p.stat().st_mtime_ns) for p in sorted(own.rglob("*.py"))]
    return [hashlib.sha256(json.dumps(facts).encode()).hexdigest()]


def content_key(name: str, array: Any) -> str:
    """A key that only equal data have."""
    import numpy as np

    data = np.ascontiguousarray(array)
    digest = hashlib.blake2b(f"{data.dtype} {data.shape}".encode(), digest_size=12)
    digest.update(data.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def as_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"
