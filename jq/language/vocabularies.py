"""Vocabularies as GGUF files hold them.

SentencePiece with scores (`tokenizer.ggml.model` "llama"): characters are merged pair by pair, the
pair first whose piece has the highest score, the leftmost of equals; what is in no piece becomes
its UTF-8 bytes. (The BPE of the `tokenizers` library ranks pairs instead, and decides otherwise
between two ways to the same piece; its Unigram looks for the best sum of scores, which these
vocabularies were not made for.)

Words into which byte-pair vocabularies cut text, by the name that files give it
(`tokenizer.ggml.pre`): a way to cut is a series of regular expressions (Oniguruma's), each of which
cuts what those before it left, into its matches and what lies between them. Sources: the
`tokenizer.json` of the models that the names come from, and llama.cpp's list of names. Where
llama.cpp has no class for a kind of letters (`\\p{Lu}` and the like), it says in its own way what
the model's file says, and differs from it beyond ASCII."""

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
        found = {}
        for i, token in enumerate(self.tokens):
            if self.types[i] == BYTE and (byte := _BYTE.fullmatch(token)):
                found[int(byte[1], 16)] = i
        return found

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


_ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
_ANY_ENDINGS = rf"(?i:{_ENDINGS})"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_GPT2 = rf"{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_SIGNS = r"[\p{P}\$\+<=>\^~\|]+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_IDEOGRAPHS = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"  # of Chinese, and Japanese letters
_BY_SENTENCE_SIGNS = r" ?[^(\s|.,!?…。，、।۔،)]+"


def _by_case(ending: str, digits: str) -> str:
    """Words begin where a small letter is followed by a capital one."""
    front = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{front}{_UPPER}*{_LOWER}+{ending}|{front}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


# Of Chinese characters apart.
_KIMI = _by_case(f"{_ANY_ENDINGS}?", r"\p{N}{1,3}").replace(r"\n/]", r"\n]")
_KIMI = r"\p{Han}+|" + _KIMI.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")


@dataclass(frozen=True)
class Words:
    """A way to cut text."""

    patterns: tuple[str, ...]  # that cut, one after the other
    whole: bool = False  # a word that is a token is that one, whatever merges would make of it
    first: bool = False  # the token for a beginning goes in front where the file does not say
    characters: bool = False  # pieces are characters, U+2581 for a space; not letters for bytes


_LLAMA3 = (rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}",)
_QWEN2 = (rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}|{_REST}",)
_RUNS = "|".join(rf"\s{{{2**i}}}(?!\S)" for i in range(9, 1, -1))  # of white space
_MARKS = _QWEN2[0].replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")

_NAMES = {
    "gpt-2 phi-2 jais mpt olmo gigachat a.x-4.0 mellum exaone4 trillion granite-docling": Words(
        (_GPT2,)
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Words(
        (r"\p{N}", _GPT2)
    ),
    "default": Words((_SIGNS, _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": Words((_SIGNS.replace("|]", "|`]"), _GPT2, "[0-9][0-9][0-9]")),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": Words(
        _LLAMA3, whole=True, first=True
    ),
    "dbrx smaug-bpe chatglm-bpe": Words(_LLAMA3),
    "glm4 glm5": Words(_LLAMA3, whole=True),
    "minicpm5": Words((r"\p{N}{1,3}", _QWEN2[0].replace(r"\p{N}|", r"\p{N}+|")), whole=True),
    "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo solar-open grok-2"
    " bailingmoe bailingmoe2 llada-moe": Words(_QWEN2),
    "qwen35": Words((_MARKS,)),
    "seed-coder": Words((rf"{_ANY_ENDINGS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "tekken": Words((_by_case("", r"\p{N}"),), whole=True, first=True),
    "jais-2": Words((_LLAMA3[0].removesuffix(r"\s+(?!\S)|\s+") + rf"{_RUNS}|\s{{1,2}}(?!\S)|\s",)),
    "exaone-moe": Words(
        (
            rf"{_ANY_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}\p{{M}}*(?: ?\p{{L}}\p{{M}}*)*|\p{{N}}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "kimi-k2": Words((_KIMI,)),
    "gpt-4o llama4 kanana2 minimax-m2": Words((_by_case(f"{_ANY_ENDINGS}?", r"\p{N}{1,3}"),)),
    "deepseek-coder": Words((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    "deepseek-llm": Words(
        (
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _EAST_ASIAN,
            r"\p{N}+",
        )
    ),
    "youtu": Words(
        (
            "[\uac00-\ud7a3\u3131-\u318e]+"
            "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
            f"|[\u3105-\u312f]+|{_IDEOGRAPHS}",
            _by_case(f"{_ANY_ENDINGS}?", r"\p{N}"),
        ),
        whole=True,
    ),
    "deepseek-v3 hunyuan-dense joyai-llm": Words(
        (
            r"\p{N}{1,3}",
            _IDEOGRAPHS,
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
        )
    ),
    "gemma4": Words((r"[^\n]+|\n+",), first=True, characters=True),
    "poro-chat bloom gpt3-finnish": Words((_BY_SENTENCE_SIGNS,)),
    "viking": Words((_BY_SENTENCE_SIGNS, r"\p{N}")),
}
WORDS = {name: words for names, words in _NAMES.items() for name in names.split()}
