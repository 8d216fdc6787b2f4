"""Vocabularies as GGUF files hold them.

SentencePiece with scores (`tokenizer.ggml.model` "llama"): characters are merged pair by pair, the
pair first whose piece has the highest score, the leftmost of equals; what is in no piece becomes
its UTF-8 bytes. (The BPE of the `tokenizers` library ranks pairs instead, and decides otherwise
between two ways to the same piece; its Unigram looks for the best sum of scores, which these
vocabularies were not made for.)

The words into which byte-pair vocabularies cut text are in `words.toml`."""

import heapq
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SPACE = "\u2581"
_WHITE = " \t\n\v\f\r"
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
# Types of tokens in GGUF files.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class SentencePiece:
    """Pieces with scores."""

    tokens: Sequence[str]  # by their numbers, as what follows
    scores: Sequence[float]
    types: Sequence[int]
    unknown: int  # the token for bytes that have none
    prefix: bool  # whether text begins with a space that is not written
    swallow: frozenset[int] = frozenset()  # tokens after which white space is left out

    @cached_property
    def _pieces(self) -> dict[str, int]:
        """Pieces that text can become: not the names of control tokens."""
        names = (NORMAL, USER_DEFINED)
        return {t: i for i, t in enumerate(self.tokens) if self.types[i] in names}

    @cached_property
    def _bytes(self) -> dict[int, int]:
        places = [i for i, kind in enumerate(self.types) if kind == BYTE]
        named = ((i, _BYTE.fullmatch(self.tokens[i])) for i in places)
        return {int(byte[1], 16): i for i, byte in named if byte}

    @cached_property
    def _whole(self) -> dict[bool, list[tuple[str, int]]]:
        """Tokens that are found in text before anything is merged, the longest first; by whether
        control tokens are among them."""

        def named(kinds: Sequence[int]) -> list[tuple[str, int]]:
            found = [(t, i) for i, t in enumerate(self.tokens) if t and self.types[i] in kinds]
            return sorted(found, key=lambda entry: -len(entry[0]))

        return {False: named((USER_DEFINED,)), True: named((USER_DEFINED, CONTROL, UNKNOWN))}

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Tokens of `text`; `special`: names of control tokens are these tokens."""
        found: list[int] = []
        after_token = True  # the text's beginning counts as one
        for part in self._parts(text, special):
            if isinstance(part, int):
                found.append(part)
                after_token = True
            else:
                prefix = " " if self.prefix and after_token else ""
                found += self._merged((prefix + part).replace(" ", SPACE))
                after_token = False
        return found

    def _parts(self, text: str, special: bool) -> list[str | int]:
        """The text, cut at whole tokens."""
        parts: list[str | int] = [text] if text else []
        for token, i in self._whole[special]:
            if token in text:
                parts = [p for part in parts for p in self._cut(part, token, i)]
        return parts

    def _cut(self, part: str | int, token: str, number: int) -> Iterator[str | int]:
        if isinstance(part, int):
            yield part
            return
        for i, text in enumerate(part.split(token)):
            if i:
                yield number
            if kept := text.lstrip(_WHITE) if i and number in self.swallow else text:
                yield kept

    def _merged(self, text: str) -> Iterator[int]:
        pieces, scores = self._pieces, self.scores
        symbols: list[str] = list(text)
        after = [*range(1, len(symbols)), -1]
        before = list(range(-1, len(symbols) - 1))
        queue: list[tuple[float, int, int, str]] = []

        def push(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                piece = symbols[left] + symbols[right]
                if (token := pieces.get(piece)) is not None:
                    heapq.heappush(queue, (-scores[token], left, right, piece))

        for i in range(1, len(symbols)):
            push(i - 1, i)
        while queue:
            _, left, right, piece = heapq.heappop(queue)
            if not symbols[left] or symbols[left] + symbols[right] != piece or after[left] != right:
                continue  # one of the two was merged since
            symbols[left], symbols[right] = piece, ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            push(before[left], left)
            push(left, after[left])
        for symbol in filter(None, symbols):
            token = pieces.get(symbol)
            if token is not None:
                yield token
            else:
                for byte in symbol.encode("utf-8", "surrogatepass"):
                    yield self._bytes.get(byte, self.unknown)

    def decode(self, tokens: Sequence[int], begins: bool = False) -> str:
        """The text of tokens; control tokens have none, nor have rows of the model's table beyond
        the vocabulary, which a model may choose too. A text that `begins` is without the space
        that `encode` puts in front of it."""
        text = b"".join(map(self.text_of, tokens)).decode("utf-8", "replace")
        return text.removeprefix(" ") if begins and self.prefix else text

    def text_of(self, token: int) -> bytes:
        if token >= len(self.tokens):
            return b""
        kind, name = self.types[token], self.tokens[token]
        if kind == BYTE and (byte := _BYTE.fullmatch(name)):
            return bytes([int(byte[1], 16)])
        return b"" if kind in (CONTROL, UNKNOWN) else name.replace(SPACE, " ").encode()


@dataclass(frozen=True)
class Words:
    """A way to cut text, as `words.toml` tells it."""

    patterns: tuple[str, ...]  # that cut, one after the other
    whole: bool = False
    first: bool = False
    characters: bool = False


def _read_words() -> dict[str, Words]:
    table = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
    parts: dict[str, str] = {}

    def whole(pattern: str) -> str:
        return re.sub("<([a-z0-9-]+)>", lambda name: parts[name[1]], pattern)

    for name, pattern in table["parts"].items():
        parts[name] = whole(pattern)
    found: dict[str, Words] = {}
    for way in table["words"]:
        names, cut = way.pop("names").split(), tuple(map(whole, way.pop("cut")))
        found |= dict.fromkeys(names, Words(cut, **way))
    return found


WORDS = _read_words()
