"""Text that fits a JSON schema or a regular expression: tokens that cannot go on so are not chosen.
The library llguidance says which those are."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from jq.base.errors import UserError
from jq.base.registry import need
from jq.base.system.files import json_object
from jq.language.tokenizer import Tokenizer
from jq.language.vocabularies import BYTE, NORMAL, USER_DEFINED, SentencePiece

Schema = Mapping[str, Any] | str | Path  # what a JSON schema says, or a file of one


@dataclass
class Grammar:
    """One text on its way."""

    matcher: Any

    @property
    def done(self) -> bool:
        """True where nothing can follow."""
        return bool(self.matcher.is_stopped())

    def masked(self, logits: np.ndarray) -> np.ndarray:
        """Logits f32[vocabulary], -inf for tokens that cannot come next; those for an end can where
        the text is whole. `UserError` where no token can."""
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        self._check()
        can = np.unpackbits(bits, bitorder="little")[: len(logits)].astype(bool)
        can = np.pad(can, (0, len(logits) - len(can)))
        if not can.any():
            raise UserError("no token of this model goes on in the form asked for")
        return np.where(can, logits, np.float32(-np.inf))

    def take(self, token: int) -> None:
        self.matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self.matcher.is_error():
            what = "tokens of this model cannot go on in the form asked for"
            raise UserError(f"{what}: {_reason(self.matcher)}")


def _reason(matcher: Any) -> str:
    """The first line of an error, and what is wrong in a regular expression, which stands below."""
    said = str(matcher.get_error())
    inner = re.search(r"^error: (.*)", said, re.MULTILINE)
    first = said.partition("\n")[0]
    return f"{first} {inner[1]}" if inner else first


def vocabulary(tokenizer: Tokenizer) -> Any:
    """The tokens of a model as llguidance has them; takes a second for a large vocabulary."""
    make, codec = need("llguidance", "grammar").LLTokenizer, cast(Any, tokenizer.codec)
    if not isinstance(codec, SentencePiece):
        size = codec.library.get_vocab_size()
        ends = sorted(tokenizer.ends) or [size]  # a token that no logits have
        try:
            return make(codec.library.to_str(), n_vocab=max(size, *ends) + 1, eos_token=ends)
        except ValueError:  # not for every kind of decoder
            texts = [codec.decode([i]) for i in range(size)]
            # Control tokens have none, and a part of a character no text of its own.
            return _made(make, tokenizer, [b"" if "\ufffd" in t else t.encode() for t in texts])
    kinds = enumerate(codec.types)
    kept = [kind in (NORMAL, USER_DEFINED, BYTE) and i not in tokenizer.ends for i, kind in kinds]
    return _made(make, tokenizer, [codec.text_of(i) if own else b"" for i, own in enumerate(kept)])


class _Tokens:
    """Bytes of each token, none of those that are no text, and one more that no logits have."""

    is_tokenizer_wrapper, bos_token_id = True, None

    def __init__(self, tokens: list[bytes], end: int | None) -> None:
        self.tokens = [t or b"<%d>" % i for i, t in enumerate(tokens)] + [b"<end>"]
        self.special_token_ids = [i for i, t in enumerate([*tokens, b""]) if not t]
        self.eos_token_id = len(tokens) if end is None else end
        self._numbers = {t: i for i, t in enumerate(tokens) if t}
        self._longest = max(map(len, tokens), default=0)

    def __call__(self, text: str | bytes) -> list[int]:
        """The longest token at each place."""
        left, found = text.encode() if isinstance(text, str) else text, list[int]()
        while left:
            size = min(self._longest, len(left))
            while size > 1 and left[:size] not in self._numbers:
                size -= 1
            found += [self._numbers[left[:size]]] if left[:size] in self._numbers else []
            left = left[size:]
        return found


def _made(make: Any, tokenizer: Tokenizer, tokens: list[bytes]) -> Any:
    given = _Tokens(tokens, min(tokenizer.ends, default=None))
    return make(given, eos_token=sorted(tokenizer.ends) or None)


def grammar(vocabulary: Any, schema: Schema | None, regex: str | None) -> Grammar:
    """The texts of a JSON schema, or of a regular expression; `UserError` where both are given, or
    what is given is none, or asks for what cannot be followed."""
    if schema is not None and regex is not None:
        raise UserError("a schema and a regular expression are both given", hint="give one of them")
    matcher = need("llguidance", "grammar").LLMatcher
    if regex is not None:
        what, made = f"the regular expression {regex!r:.60}", matcher.grammar_from_regex(regex)
    else:
        found = json_object(Path(schema)) if isinstance(schema, str | Path) else dict(schema or {})
        try:
            what, made = "the schema", matcher.grammar_from_json_schema(json.dumps(found))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"this is no JSON schema: {error}") from error
    begun = matcher(vocabulary, made, log_level=0)
    if begun.is_error():
        raise UserError(f"{what} cannot be followed: {_reason(begun)}")
    return Grammar(begun)
