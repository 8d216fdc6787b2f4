"""Files of this machine with the type that their extension says: labels for magika for free."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOTS = (sysconfig.get_paths()["purelib"], "/usr/lib", "/usr/share", "/usr/include")
SMALLEST = 64  # bytes; shorter files say little


@dataclass(frozen=True)
class Labelled:
    path: Path
    label: str


def collect(types: Mapping[str, Any], labels: Sequence[str], count: int) -> list[Labelled]:
    """`count` files, no two alike, in an order that is drawn; as even over the types as there are.

    Args:
        types: magika's own list of types, with their extensions.
        labels: types that its model knows.
    """
    owners = _owners(types, set(labels))
    groups: dict[str, list[Path]] = {}
    for path in _files():
        label = owners.get(path.suffix[1:].lower())
        if label is not None:
            groups.setdefault(label, []).append(path)
    rng = np.random.default_rng(0)
    for group in groups.values():
        rng.shuffle(group)  # type: ignore[arg-type]
    found, seen, taken = [], set(), Counter[str]()
    queue = sorted(groups)
    while queue and len(found) < count:
        label = queue.pop(0)
        while groups[label]:
            path = groups[label].pop()
            digest = hashlib.sha256(_content(path)).digest()
            if digest not in seen:
                seen.add(digest)
                found.append(Labelled(path, label))
                taken[label] += 1
                break
        if groups[label]:
            queue.append(label)
    rng.shuffle(found)  # type: ignore[arg-type]
    return found


def _owners(types: Mapping[str, Any], labels: set[str]) -> dict[str, str]:
    """Extension -> type, where only one type has it."""
    claims: dict[str, list[str]] = {}
    for label, facts in types.items():
        for extension in facts["extensions"]:
            claims.setdefault(extension, []).append(label)
    return {e: c[0] for e, c in claims.items() if len(c) == 1 and c[0] in labels}


def _files() -> Iterator[Path]:
    for root in ROOTS:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if not path.is_symlink() and path.is_file() and path.stat().st_size >= SMALLEST:
                    yield path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # counts as one that was seen


def features(path: Path, settings: Mapping[str, Any]) -> np.ndarray:
    """The first and the last bytes of a file, white space at the ends off, [1, 2048] int32."""
    block, padding = settings["block_size"], settings["padding_token"]
    with path.open("rb") as file:
        first = file.read(block).lstrip()[: settings["beg_size"]]
        file.seek(max(0, path.stat().st_size - block))
        last = file.read(block).rstrip()[-settings["end_size"] :]
    x = np.full((2, settings["beg_size"]), padding, np.int32)
    x[0, : len(first)] = np.frombuffer(first, np.uint8)
    x[1, len(x[1]) - len(last) :] = np.frombuffer(last, np.uint8)
    return x.reshape(1, -1)
