"""Compiled programs and packed weights of a language model, kept between runs.

A folder holds what one model file and one set of options gave with this compiler on this processor:

    1x512.vmfb, 1x512.json   a program for 1 token and a cache of 512, and what it takes and gives
    1x512.irpa               the weights that no program before it had stored

Weights are found by their content, so that programs of all lengths share them.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jq.artifact.keys import digest
from jq.artifact.store import Cache, file_digest, shrink
from jq.base.errors import UserError
from jq.base.system.files import read_text
from jq.frontends.gguf import parts_of
from jq.language.decoder.config import Count
from jq.language.decoder.safetensors import json_object

# Files of a folder that is compiled ahead.
MANIFEST, TOKENIZER, HEADER = "language.json", "tokenizer", "header.gguf"
_TYPES = ("float32", "bfloat16", "float16", "int8", "int32")  # of what programs take and give


@dataclass(frozen=True)
class Options:
    """Options that change the programs of a model."""

    pipeline: str = "int8-dynamic"  # products of weights in blocks of a file keep those
    cache: str = "float32"  # type of keys and values that are kept: "float32", "bfloat16" or "int8"
    context: Count = 4096  # the largest number of tokens, prompt included
    batch: Count = 1  # sequences that go side by side


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
    def of(cls, model: Path, options: Options, root: Path | None = None) -> "Store":
        """The folder for a model with options; `root` instead of the user's cache directory."""
        kinds = (".gguf", ".safetensors", ".json")
        files = (
            sorted(p for p in model.iterdir() if p.is_file() and p.suffix in kinds)
            if model.is_dir()
            else parts_of(model)
        )
        inputs = [asdict(options), list(_own_pipeline(options.pipeline)), file_digest(files, root)]
        return cls(Cache("language", root=root).path(inputs))

    def program(self, shape: Shape) -> Path:
        return self.folder / f"{shape.name}.vmfb"

    def described(self, shape: Shape) -> dict[str, Any] | None:
        """Description of a program: what it takes and gives; None where there is none, or it is
        damaged."""
        try:
            found = described(self.folder / f"{shape.name}.json")
        except UserError:
            return None
        return found if self.program(shape).is_file() else None

    def archives(self) -> list[Path]:
        return sorted(self.folder.glob("*.irpa"))

    def shrink(self) -> None:
        """Makes room in the store, but never removes this folder."""
        if not self.sealed:
            shrink(self.folder.parent, spared=self.folder)

    def touch(self) -> None:
        if not self.sealed and self.folder.is_dir():
            os.utime(self.folder)


def _own_pipeline(name: str) -> Iterator[str]:
    """The texts of a pipeline that is a file, and of those that it is based on."""
    file = Path(name)
    while file.suffix == ".toml":
        yield (text := read_text(file))
        try:
            base = str(tomllib.loads(text).get("base", ""))
        except tomllib.TOMLDecodeError:
            return  # refused where it is compiled
        file = file.parent / base


def described(path: Path) -> dict[str, Any]:
    """The description of a program: `inputs` and `outputs` as shape and type, whether each state
    `grows`, and the `cpu` that it needs, as architecture and features; `UserError` where there is
    none."""
    found = json_object(path)
    try:
        architecture, features = found["cpu"]
        sound = all(isinstance(text, str) for text in (architecture, *features))
        for shape, dtype in (*found["inputs"], *found["outputs"]):
            sound &= all(type(n) is int and 0 <= n < 1 << 31 for n in shape) and dtype in _TYPES
        states = len(found["outputs"]) - 1
        grows = found.setdefault("grows", [True] * states)  # of programs from before it was said
        sound &= [type(each) for each in grows] == [bool] * states
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UserError("not the description of a language model's program", location=str(path))
    return found


def content_key(name: str, array: Any) -> str:
    """A key that only equal data have."""
    return digest(array)[:24]


def as_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1) + "\n"
