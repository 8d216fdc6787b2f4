"""Tokenizers of the `tokenizers` library; those of a `tokenizer.json` behind a process."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.models._tree import need


@dataclass(frozen=True)
class Library:
    """A tokenizer of the `tokenizers` library. `plain` does not look for control tokens."""

    library: Any
    plain: Any

    def encode(self, text: str, special: bool = False) -> list[int]:
        chosen = self.library if special else self.plain
        try:
            found: list[int] = chosen.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            # A pattern that takes too long ends as a panic of Rust, which is no `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise UserError(f"the tokenizer cannot read this text: {error}") from error
        return found

    def decode(self, tokens: Sequence[int], begins: bool = False) -> str:
        return decoded(self.library, tokens, [] if begins else self._letter)

    @cached_property
    def _letter(self) -> list[int]:
        return _letter(self.library)


def decoded(library: Any, tokens: Sequence[int], before: Sequence[int]) -> str:
    """The text of tokens behind others: a decoder changes the first piece of what it is given (it
    strips a space, say), which those before take from it."""

    def text(some: Sequence[int]) -> str:
        found: str = library.decode(list(some), skip_special_tokens=True)
        return found

    front, whole = text(before), text([*before, *tokens])
    return whole[len(front) :] if whole.startswith(front) else text(tokens)


def _letter(library: Any) -> list[int]:
    """Tokens that a text can go on after."""
    found: list[int] = library.encode("a", add_special_tokens=False).ids
    return found[:_MOST]


@dataclass(frozen=True)
class Guarded:
    """The tokenizer of a `tokenizer.json`, which may come from anybody: what normalizes text can
    make much of little, so that text is encoded in a process that has limits (`jq.base.guard`).
    What decodes it was found to make no more of a token than `_MOST` times itself."""

    content: bytes = field(repr=False)
    path: str
    library: Any
    letter: tuple[int, ...]

    def encode(self, text: str, special: bool = False) -> list[int]:
        size = len(self.content) + 4 * len(text)
        given: Any = {"prompt": text, "special": special}
        asked = f"{__name__}:encoded", self.content, self.path
        found: list[int] = WORKER.ask(*asked, size=size, **given)
        return found

    def decode(self, tokens: Sequence[int], begins: bool = False) -> str:
        return decoded(self.library, tokens, () if begins else self.letter)


def guarded_library(content: bytes, path: str) -> tuple[Guarded, list[int], list[int]]:
    """The codec of a `tokenizer.json`, and the tokens that it puts in front of every text and
    behind it; `UserError` where the library refuses it, or it takes too much time or memory."""
    first, last, letter = WORKER.ask(f"{__name__}:around", content, path)
    made = _from_json(content)  # it did no harm over there
    return Guarded(content, path, made, tuple(letter)), first, last


def around(content: bytes) -> tuple[list[int], list[int], list[int]]:
    """The tokens that a post-processor puts in front of a text, and behind it; and those of a
    letter. Runs in a process that has limits."""
    library = need("tokenizers")
    one = library.Tokenizer(library.models.WordLevel({"a": 0}, unk_token="a")).encode("a")
    special = _library_of(content).library
    made = special.post_process(one)
    inside = [i for i, of in enumerate(made.sequence_ids) if of is not None]
    first = inside[0] if inside else len(made.ids)
    last = inside[-1] + 1 if inside else len(made.ids)
    return made.ids[:first], made.ids[last:], _letter(special)


def encoded(content: bytes, prompt: str, special: bool) -> list[int]:
    """The tokens of a text by a `tokenizer.json`. Runs in a process that has limits."""
    return _library_of(content).encode(prompt, special)


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
    """Factor by which the steps of a decoder can make a text longer."""
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
