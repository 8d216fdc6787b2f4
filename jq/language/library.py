"""Tokenizers of the `tokenizers` library; those of a `tokenizer.json` behind a process."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.models._extras import need


@dataclass(frozen=True)
class Library:
    """A tokenizer of the `tokenizers` library. `plain` does not look for control tokens."""

    special: Any
    plain: Any

    def encode(self, text: str, special: bool = False) -> list[int]:
        chosen = self.special if special else self.plain
        try:
            found: list[int] = chosen.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            # A pattern that takes too long ends as a panic of Rust, which is no `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise UserError(f"the tokenizer cannot read this text: {error}") from error
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        found: str = self.special.decode(list(tokens), skip_special_tokens=True)
        return found


@dataclass(frozen=True)
class Guarded:
    """The tokenizer of a `tokenizer.json`, which may come from anybody: what normalizes text can
    make much of little, so that text is encoded in a process that has limits (`jq.base.guard`).
    What decodes it was found to make no more of a token than `_MOST` times itself."""

    content: bytes = field(repr=False)
    path: str
    decoding: Any

    def encode(self, text: str, special: bool = False) -> list[int]:
        return _encoded_there(self.content, self.path, text, special)

    def decode(self, tokens: Sequence[int]) -> str:
        found: str = self.decoding.decode(list(tokens), skip_special_tokens=True)
        return found


def guarded_library(content: bytes, path: str) -> tuple[Guarded, list[int]]:
    """The codec of a `tokenizer.json`, and the tokens that go in front of every prompt.

    Raises:
        UserError: the library refuses it, or it takes too much time or memory.
    """
    first = _encoded_there(content, path, None)
    return Guarded(content, path, _from_json(content)), first  # it did no harm over there


def _encoded_there(content: bytes, path: str, text: str | None, special: bool = False) -> list[int]:
    size = len(content) + 4 * len(text or "")
    asked = f"{__name__}:encoded"
    found: list[int] = WORKER.ask(asked, content, path, size=size, prompt=text, special=special)
    return found


def encoded(content: bytes, prompt: str | None, special: bool) -> list[int]:
    """The tokens of a text by a `tokenizer.json`, or those in front of every text. Runs in a
    process that has limits."""
    library = _library_of(content)
    if prompt is None:
        front: list[int] = library.special.encode("", add_special_tokens=True).ids
        return front
    return library.encode(prompt, special)


@lru_cache(maxsize=1)
def _library_of(content: bytes) -> Library:
    special, plain = _from_json(content), _from_json(content)
    for each in (special, plain):  # a prompt is taken whole or refused, as `transformers` does
        each.no_truncation()
        each.no_padding()
    special.encode("a b", add_special_tokens=True)  # for what may go wrong on that
    plain.encode_special_tokens = True
    if (growth := _growth(json.loads(content).get("decoder"))) > _MOST:
        raise UserError(f"its decoder makes a text {growth:.3g} times as long")
    return Library(special, plain)


_MOST = 64


def _growth(decoder: Any) -> float:
    """How many times as long the steps of a decoder can make a text."""
    if isinstance(decoder, list):
        return math.prod(map(_growth, decoder))
    if not isinstance(decoder, dict):
        return 1.0
    if decoder.get("type") != "Replace":
        return _growth(decoder.get("decoders"))
    pattern, content = decoder.get("pattern"), decoder.get("content")
    plain = pattern.get("String") if isinstance(pattern, dict) else None
    length = len(str(content).encode())
    return max(1.0, length / len(plain.encode())) if plain else length + 1.0


def _from_json(content: bytes) -> Any:
    try:
        return need("tokenizers").Tokenizer.from_buffer(content)
    except Exception as error:  # the library knows one class of exceptions
        raise UserError(f"cannot read: {error}") from error
