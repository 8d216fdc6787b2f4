"""Tokenizers of the `tokenizers` library; those of a `tokenizer.json` behind a process."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.base.registry import need


@dataclass(frozen=True)
class Library:
    """A tokenizer of the `tokenizers` library."""

    library: Any
    letter: Sequence[int]  # tokens that a text can go on after
    plain: Any = None  # the same library, which does not look for control tokens

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
        """The text of tokens behind others: a decoder changes the first piece of what it is given
        (it strips a space, say), which those of a letter take from it."""

        def text(some: Sequence[int]) -> str:
            found: str = self.library.decode(list(some), skip_special_tokens=True)
            return found

        before = () if begins else self.letter
        front, whole = text(before), text([*before, *tokens])
        return whole[len(front) :] if whole.startswith(front) else text(tokens)


def letter_of(library: Any) -> list[int]:
    found: list[int] = library.encode("a", add_special_tokens=False).ids
    return found[:_MOST]


@dataclass(frozen=True)
class Guarded(Library):
    """The tokenizer of a `tokenizer.json`, which may come from anybody: what normalizes text can
    make much of little, so that text is encoded in a process that has limits (`jq.base.guard`).
    What decodes it was found to make no more of a token than `_MOST` times itself."""

    content: bytes = field(default=b"", repr=False)
    path: str = ""
    more: str = "[]"  # tokens beside those of the file, as `guarded_library` takes them
    split: bool = False  # names of control tokens are never these tokens

    def encode(self, text: str, special: bool = False) -> list[int]:
        size = len(self.content) + 4 * len(text)
        special = special and not self.split
        given: Any = {"prompt": text, "special": special, "more": self.more}
        asked = f"{__name__}:encoded", self.content, self.path
        found: list[int] = WORKER.ask(*asked, size=size, **given)
        return found


def guarded_library(content: bytes, path: str, more: str) -> tuple[Guarded, list[int], list[int]]:
    """The codec of a `tokenizer.json`, and the tokens that it puts in front of every text and
    behind it; `UserError` where the library refuses it, or it takes too much time or memory.
    `more`: JSON of tokens beside those of the file, as arguments of `AddedToken`, of which some are
    added `unless_known`."""
    first, last, letter = WORKER.ask(f"{__name__}:around", content, path, more=more)
    made = _from_json(content, more)  # it did no harm over there
    return Guarded(made, letter, content=content, path=path, more=more), first, last


def around(content: bytes, more: str) -> tuple[list[int], list[int], list[int]]:
    """The tokens that a post-processor puts in front of a text, and behind it; and those of a
    letter. Runs in a process that has limits."""
    library = need("tokenizers")
    one = library.Tokenizer(library.models.WordLevel({"a": 0}, unk_token="a")).encode("a")
    special = _library_of(content, more).library
    made = special.post_process(one)
    inside = [i for i, of in enumerate(made.sequence_ids) if of is not None]
    first = inside[0] if inside else len(made.ids)
    last = inside[-1] + 1 if inside else len(made.ids)
    return made.ids[:first], made.ids[last:], letter_of(special)


def encoded(content: bytes, prompt: str, special: bool, more: str) -> list[int]:
    """The tokens of a text by a `tokenizer.json`. Runs in a process that has limits."""
    return _library_of(content, more).encode(prompt, special)


@lru_cache(maxsize=1)
def _library_of(content: bytes, more: str) -> Library:
    special, plain = _from_json(content, more), _from_json(content, more)
    for each in (special, plain):  # a prompt is taken whole or refused, as `transformers` does
        each.no_truncation()
        each.no_padding()
    special.encode("a b", add_special_tokens=True)  # for what may go wrong on that
    plain.encode_special_tokens = True
    if (growth := _growth(json.loads(content).get("decoder"))) > _MOST:
        raise UserError(f"its decoder makes a text {growth:.3g} times as long")
    return Library(special, (), plain)


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


def _from_json(content: bytes, more: str) -> Any:
    library = need("tokenizers")
    try:
        made = library.Tokenizer.from_buffer(content)
        known = {token.content for token in made.get_added_tokens_decoder().values()}
        listed = json.loads(more)
        wanted = [t for t in listed if not (t.pop("unless_known", 0) and t["content"] in known)]
        # Many at once: some models have thousands, and the library begins anew after each call.
        for special, tokens in groupby(wanted, lambda token: bool(token.get("special"))):
            add = made.add_special_tokens if special else made.add_tokens
            add([library.AddedToken(**token) for token in tokens])
    except Exception as error:  # the library knows one class of exceptions
        raise UserError(f"cannot read: {error}") from error
    return made
