"""Files that are nearly right: a valid one with a few bytes, or a few values, that are others."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

_NUMBERS: tuple[int, ...] = (
    0,
    1,
    -1,
    127,
    255,
    1 << 15,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
)
_NUMBERS += ((1 << 63) - 1, -(1 << 63), (1 << 64) - 1)
_WORDS = (b"", b"\0", b"\xff\xfe", b"nan", b"-1", b"1e999", b"null", b"[[[[", b'"', b"\n", b"../x")
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1 << 31, 1 << 64, 10**400, 1e308, 0.5, "", "x", "\0")
_VALUES += ([], {}, [None], [[]], {"a": 1}, "\ud800", "../x", float("nan"), float("inf"))


def mutated(seeds: Sequence[bytes], draw: random.Random, structured: bool) -> bytes:
    """One of `seeds`, changed in up to four places; as JSON by value where `structured`, mostly."""
    data = draw.choice(seeds)
    if structured and draw.random() < 0.8:
        return _values(data, draw)
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        draw.choice(_CHANGES)(found, draw, seeds)
    return bytes(found)


def _flip(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _byte(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))


def _number(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    """A number of 1 to 8 bytes, at a place where one could be."""
    width = draw.choice((1, 2, 4, 8))
    if len(data) >= width:
        at = draw.randrange(len(data) - width + 1)
        at -= at % width if draw.random() < 0.5 else 0
        value = draw.choice(_NUMBERS) & ((1 << 8 * width) - 1)
        data[at : at + width] = value.to_bytes(width, "little")


def _cut(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    del data[draw.randrange(len(data) + 1) :]


def _remove(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    del data[at : at + draw.choice((1, 2, 8, 64))]


def _repeat(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = data[at : at + draw.choice((1, 4, 32))] * draw.choice((1, 2, 50))


def _word(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    data[at : at + draw.choice((0, 1, 4))] = draw.choice(_WORDS)


def _splice(data: bytearray, draw: random.Random, seeds: Sequence[bytes]) -> None:
    other = draw.choice(seeds)
    at = draw.randrange(len(data) + 1)
    data[at:] = other[draw.randrange(len(other) + 1) :]


_CHANGES = (_flip, _byte, _number, _number, _cut, _remove, _repeat, _word, _splice)


def _values(data: bytes, draw: random.Random) -> bytes:
    top = json.loads(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        node, places = top, _places(top)
        if not places:
            break
        node, key = draw.choice(places)
        if draw.random() < 0.15:
            del node[key]
        elif draw.random() < 0.2:
            other, there = draw.choice(places)
            node[key] = json.loads(json.dumps(other[there])) if there in _keys(other) else None
        else:
            node[key] = copy.deepcopy(draw.choice(_VALUES))
    return json.dumps(top).encode()


def _keys(node: Any) -> Any:
    return node if isinstance(node, dict) else range(len(node))


def _places(node: Any) -> list[tuple[Any, Any]]:
    found = []
    if isinstance(node, dict | list):
        for key in _keys(node):
            found += [(node, key), *_places(node[key])]
    return found
