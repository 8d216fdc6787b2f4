"""Text to tokens and back, and the vocabulary of a GGUF file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from jq.base.errors import UserError, check_known
from jq.base.registry import need
from jq.language import vocabularies
from jq.language.library import Library, letter_of
from jq.language.vocabularies import CONTROL, SPACE, UNKNOWN, USER_DEFINED, WORDS, SentencePiece

_KEY, _NAMED = "tokenizer.ggml.", "tokenizer.chat_template."
_OWN_ENDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")  # by the names of keys
# Names of tokens that end a turn, where the file does not say so; llama.cpp has the same list. In
# the second half, those of code: a model that fills in the middle ends with them.
_END_NAMES = (
    "<end_of_turn> <|eot_id|> <|im_end|> <|end|> <|endoftext|> </s> <eos> <|eom_id|>"
    " <|end_of_text|> <end_of_utterance> <EOT> _<EOT> [EOT] [EOS] <｜end▁of▁sentence｜>"
    " <|return|> <|call|> <|calls|> <|flush|> <turn|> <|tool_response> <|fim_pad|> <fim-pad>"
    " <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>"
    " <|file_sep|>"
)
_ENDS = frozenset(_END_NAMES.split())
# Where a model has both of a pair, `<|end|>` ends a part of what it says.
_PARTS = (("<|return|>", "<|call|>"), ("<|calls|>", "<|flush|>"))
# Tokens of SentencePiece vocabularies whose file does not say which they are.
_USUAL = {"unknown": 0, "bos": 1, "eos": 2}


class Codec(Protocol):
    def encode(self, text: str, special: bool = False) -> list[int]: ...
    def decode(self, tokens: Sequence[int], begins: bool = False) -> str: ...


@dataclass(frozen=True)
class Tokenizer:
    """Prompts as a model wants them."""

    codec: Codec = field(repr=False)  # what makes tokens of text
    first: tuple[int, ...]  # tokens that go in front of every prompt
    ends: frozenset[int]  # tokens after which a model has said what it had to say
    template: str | None = field(default=None, repr=False)  # of chats, in Jinja
    names: Mapping[str, str] = field(default_factory=dict)  # for it, as `bos_token`
    last: tuple[int, ...] = ()  # tokens that go behind every prompt
    other_templates: Mapping[str, str] = field(default_factory=dict, repr=False)  # by their names

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Tokens of a prompt; `special`: names of control tokens in it are these tokens, nothing
        goes behind it, and the tokens that go in front are left out where it begins with them.
        `UserError` where it is no Unicode text, as a command line that is no UTF-8 is not."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = f"character {error.start} is half of a pair"
            raise UserError(f"the prompt is no Unicode text: {at}", hint="write UTF-8") from error
        tokens = self.codec.encode(text, special)
        if special:
            return tokens if self._begins(tokens) else [*self.first, *tokens]
        return [*self.first, *tokens, *self.last]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, as it goes on after others: a space in front is kept, so that texts
        of one token after the other make up that of all. Tokens that begin with those that go in
        front of a prompt are a whole text, without the space that a tokenizer puts there."""
        return self.codec.decode(tokens, self._begins(tokens))

    def _begins(self, tokens: Sequence[int]) -> bool:
        return bool(self.first) and tuple(tokens[: len(self.first)]) == self.first


def check_tokens(tokens: Sequence[int], vocabulary: int) -> None:
    """Raises `UserError` for a token that is no row of the model's table: a tokenizer may know
    more than the model that it lies beside."""
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise UserError(f"{token} is not one of {vocabulary} tokens")


def tokenizer_of_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata; `UserError` where it is unknown or damaged."""
    kind = metadata.get(f"{_KEY}model")
    tokens = metadata.get(f"{_KEY}tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise UserError(f"the file holds no {_KEY}tokens", location=where)
    check_known("tokenizer", kind, ("llama", "gpt2", "gemma4"), location=where)
    types = _numbers(metadata, "token_type", len(tokens), vocabularies.NORMAL, where)
    # Files mark some of these as tokens that a text may spell.
    for i, token in enumerate(tokens):
        if token in _ENDS:
            types[i] = CONTROL
    said = ("bos", "unknown", *_OWN_ENDS)
    ids = {n: _token(metadata, f"{n}_token_id", len(tokens), where) for n in said}
    words = None
    if kind == "llama":
        for name, i in _USUAL.items():
            if ids[name] is None and i < len(tokens) and types[i] in (CONTROL, UNKNOWN):
                ids[name] = i
        codec: Codec = SentencePiece(
            tokens,
            _numbers(metadata, "scores", len(tokens), 0.0, where),
            types,
            ids["unknown"] or 0,
            bool(metadata.get(f"{_KEY}add_space_prefix", True)),
            _swallow(metadata, tokens, types),
        )
    else:
        cut = metadata.get(f"{_KEY}pre", "default") if kind == "gpt2" else kind
        words = WORDS[check_known("pre-tokenizer", cut, WORDS, location=where)]
        codec = _byte_pairs(metadata, tokens, types, words, where)
    with_bos = metadata.get(f"{_KEY}add_bos_token", words is None or words.first)
    named = {k.removeprefix(_NAMED): str(v) for k, v in metadata.items() if k.startswith(_NAMED)}
    return Tokenizer(
        codec,
        (ids["bos"],) if with_bos and ids["bos"] is not None else (),
        ends_of({t: i for i, t in enumerate(tokens)}.get, [ids[name] for name in _OWN_ENDS]),
        only_text(metadata.get("tokenizer.chat_template")),
        {f"{n}_token": tokens[ids[n]] for n in ("bos", "eos") if ids[n] is not None},
        other_templates=named,
    )


def ends_of(number: Callable[[str], int | None], given: Iterable[Any]) -> frozenset[int]:
    """Tokens that end what a model says: those that its files give, and those of usual names."""
    named = {name: number(name) for name in _ENDS}
    if any(named[a] is not None and named[b] is not None for a, b in _PARTS):
        named["<|end|>"] = None
    return frozenset(i for i in (*given, *named.values()) if type(i) is int)


def _swallow(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> frozenset[int]:
    """Tokens that white space after them belongs to: those of Phi-3's chats, whose file says so by
    its name alone. llama.cpp does the same."""
    if not any(name in str(metadata.get("general.name")).lower() for name in ("phi-3", "phi3")):
        return frozenset()
    others = ("<unk>", "<s>", "<|endoftext|>")
    whole = {i for i, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED, UNKNOWN)}
    return frozenset(i for i in whole if tokens[i] not in others)


def _numbers(metadata: Mapping[str, Any], key: str, count: int, fill: Any, where: str) -> Any:
    found = metadata.get(_KEY + key)
    if found is None:
        return [fill] * count
    if not isinstance(found, np.ndarray) or len(found) != count:
        raise UserError(f"{_KEY}{key} does not hold {count} numbers", location=where)
    return found.tolist()


def _token(metadata: Mapping[str, Any], key: str, count: int, where: str) -> Any:
    value = metadata.get(_KEY + key)
    if value is not None and (type(value) is not int or not 0 <= value < count):
        raise UserError(f"{_KEY}{key} is {value!r}, not one of {count} tokens", location=where)
    return value


def _byte_pairs(
    metadata: Mapping[str, Any],
    tokens: Sequence[str],
    types: Sequence[int],
    words: vocabularies.Words,
    where: str,
) -> Library:
    merges = metadata.get(f"{_KEY}merges")
    if not isinstance(merges, list) or not all(m.count(" ") == 1 for m in map(str, merges)):
        raise UserError(f"{_KEY}merges are no pairs", location=where)
    library = need("tokenizers")
    cuts, pairs = library.pre_tokenizers, [tuple(m.split(" ")) for m in merges]
    vocabulary = {t: i for i, t in enumerate(tokens)}

    def made() -> Any:
        try:
            how = {"ignore_merges": words.whole, "byte_fallback": words.characters}
            model = library.models.BPE(vocabulary, pairs, **how)
        except Exception as error:  # the library knows one class of exceptions
            raise UserError(f"{_KEY}merges: {error}", location=where) from error
        tokenizer = library.Tokenizer(model)
        splits = [cuts.Split(library.Regex(pattern), "isolated") for pattern in words.patterns]
        decoders = library.decoders
        if words.characters:
            tokenizer.normalizer = library.normalizers.Replace(" ", SPACE)
            tokenizer.pre_tokenizer = cuts.Sequence(splits)
            parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
            tokenizer.decoder = decoders.Sequence(parts)
        else:
            letters = cuts.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.pre_tokenizer = cuts.Sequence([*splits, letters])
            tokenizer.decoder = decoders.ByteLevel()
        for kind, is_special in ((CONTROL, True), (UNKNOWN, True), (USER_DEFINED, False)):
            token = partial(library.AddedToken, normalized=False, special=is_special)
            named = zip(tokens, types, strict=True)
            tokenizer.add_tokens([token(text) for text, own in named if own == kind])
        return tokenizer

    plain = made()
    plain.encode_special_tokens = True
    return Library(special := made(), letter_of(special), plain)


def only_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
