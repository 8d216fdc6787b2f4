"""Text to tokens and back, by the vocabulary of a GGUF file or by a `tokenizer.json`."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import lexists
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jq.base.errors import UserError, check_known
from jq.base.system.files import json_object, read_input, read_text
from jq.language.decoder.text import text_of
from jq.language.library import Library, guarded_library, letter_of
from jq.language.sidecars import ADDED, PROCESSORS, SETTINGS, TEMPLATE, TEMPLATES
from jq.language.vocabularies import (
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    WORDS,
    SentencePiece,
    Words,
)
from jq.models._tree import need

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
_PARTS_OF_TOKEN = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
_SPECIAL = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
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
    types = _numbers(metadata, "token_type", len(tokens), NORMAL, where)
    # Files mark some of these as tokens that a text may spell.
    for i, token in enumerate(tokens):
        if token in _ENDS:
            types[i] = CONTROL
    ids = {
        name: _token(metadata, f"{name}_token_id", len(tokens), where)
        for name in ("bos", "unknown", *_OWN_ENDS)
    }
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
        _ends({t: i for i, t in enumerate(tokens)}.get, [ids[name] for name in _OWN_ENDS]),
        _text(metadata.get("tokenizer.chat_template")),
        {f"{n}_token": tokens[ids[n]] for n in ("bos", "eos") if ids[n] is not None},
        other_templates=named,
    )


def _ends(number: Callable[[str], int | None], given: Iterable[Any]) -> frozenset[int]:
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
    words: Words,
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
            model = library.models.BPE(
                vocabulary, pairs, ignore_merges=words.whole, byte_fallback=words.characters
            )
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
            tokenizer.add_tokens(
                [
                    library.AddedToken(t, normalized=False, special=is_special)
                    for t, k in zip(tokens, types, strict=True)
                    if k == kind
                ]
            )
        return tokenizer

    plain = made()
    plain.encode_special_tokens = True
    return Library(special := made(), letter_of(special), plain)


def tokenizer_of_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder of Hugging Face: `tokenizer.json` and what lies beside it."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UserError("this folder has no tokenizer.json", location=str(folder))
    settings: dict[str, Any] = {}
    for name in SETTINGS:
        if lexists(folder / name):  # a link to nowhere is refused
            found = json_object(folder / name)
            settings |= {key: value for key, value in found.items() if value is not None}
    more = _added(settings)
    if "added_tokens_decoder" not in settings and lexists(folder / ADDED):
        more = [*_added_of_old(json_object(folder / ADDED), more), *more]
    codec, first, last = guarded_library(read_input(path), str(path), json.dumps(more))
    codec = replace(codec, split=settings.get("split_special_tokens") is True)
    number = codec.library.token_to_id
    given = [settings.get("eos_token_id") or text_of(settings).get("eos_token_id")]
    extra = settings.get("extra_special_tokens")
    named = {key: settings.get(key) for key in _SPECIAL}
    named |= extra if isinstance(extra, dict) else {}
    names = {key: text for key, token in named.items() if (text := _name(token))}
    own = number(names["eos_token"]) if "eos_token" in names else None
    ends = _ends(number, [*(given[0] if isinstance(given[0], list) else given), own])
    # A text ends with these, and a prompt goes on.
    closing = ends | {number(names[key]) for key in ("eos_token", "sep_token") if key in names}
    default, others = chat_templates(folder, settings)
    behind = tuple(token for token in last if token not in closing)
    return Tokenizer(codec, tuple(first), ends, default, names, behind, others)


def _added(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tokens that settings add to those of a `tokenizer.json`, as `transformers` does: as arguments
    of `AddedToken`."""
    listed, found = settings.get("added_tokens_decoder"), []
    if isinstance(listed, dict):
        found += [listed[key] for key in sorted(listed, key=lambda key: (len(key), key))]
        if odd := [token for token in found if not isinstance(token, dict)]:
            raise UserError(f"added_tokens_decoder has {odd[0]!r:.40}, which is no object")
    special = [settings.get(key) for key in _SPECIAL]
    for key in ("extra_special_tokens", "additional_special_tokens"):
        more = settings.get(key)
        more = list(more.values()) if isinstance(more, dict) else more
        special += more if isinstance(more, list) else []
    found += [{**(t if isinstance(t, dict) else {"content": t}), "special": True} for t in special]
    return [{k: token[k] for k in _PARTS_OF_TOKEN if k in token} for token in found if _name(token)]


def _added_of_old(
    numbers: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The tokens of `added_tokens.json`, which has no more of them than their numbers, in the order
    of these; those among the `others` are special. What a `tokenizer.json` says of one counts."""
    if odd := [text for text, number in numbers.items() if type(number) is not int]:
        raise UserError(f"{ADDED} has no number for {odd[0]!r:.40}")
    special = {token["content"] for token in others}
    return [
        {
            "content": t,
            "special": t in special,
            "normalized": t not in special,
            "unless_known": True,
        }
        for t in sorted(numbers, key=lambda text: numbers[text])
    ]


def chat_templates(folder: Path, settings: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """The default one of a folder's templates, and the others by name: from files of their own,
    else from the tokenizer's settings, else from those of a processor of images and text."""
    files = {p.stem: p for p in sorted((folder / TEMPLATES).glob("*.jinja"))}
    if lexists(folder / TEMPLATE):
        files["default"] = folder / TEMPLATE
    if files:
        texts = {name: read_text(path) for name, path in files.items()}
        return texts.pop("default", None), texts
    found = settings.get("chat_template")
    for name in PROCESSORS:
        if found is None and lexists(folder / name):
            found = json_object(folder / name).get("chat_template")
    if isinstance(found, list):
        named = [entry for entry in found if isinstance(entry, dict)]
        found = {str(entry.get("name")): entry.get("template") for entry in named}
    if isinstance(found, dict):
        texts = {name: found[name] for name in sorted(found) if _text(found[name])}
        return texts.pop("default", None), texts
    return _text(found), {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _name(token: Any) -> str | None:
    """A token in a config is its text, or an object that has it."""
    return _text(token.get("content") if isinstance(token, dict) else token)
