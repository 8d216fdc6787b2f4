"""The tokenizer of a folder of Hugging Face, and its chat templates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import lexists
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.system.files import json_object, read_input, read_text
from jq.frontends.sidecars import ADDED, PAIRS, PROCESSORS, SETTINGS, TEMPLATE, TEMPLATES
from jq.language.decoder.text import text_of
from jq.language.library import guarded_library
from jq.language.tokenizer import Tokenizer, ends_of, only_text

_PARTS_OF_TOKEN = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
_SPECIAL = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]


def tokenizer_of_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder of Hugging Face: `tokenizer.json` and what lies beside it."""
    path = folder / "tokenizer.json"
    settings: dict[str, Any] = {}
    for name in SETTINGS:
        if lexists(folder / name):  # a link to nowhere is refused
            found = json_object(folder / name)
            settings |= {key: value for key, value in found.items() if value is not None}
    whole = path.is_file()
    content = read_input(path) if whole else _of_pairs(folder, settings)
    more = _added(settings)
    if "added_tokens_decoder" not in settings and lexists(folder / ADDED):
        more = [*_added_of_old(json_object(folder / ADDED), more), *more]
    codec, first, last = guarded_library(content, str(path), json.dumps(more))
    codec = replace(codec, split=settings.get("split_special_tokens") is True)
    number = codec.library.token_to_id
    given = [settings.get("eos_token_id") or text_of(settings).get("eos_token_id")]
    extra = settings.get("extra_special_tokens")
    named = {key: settings.get(key) for key in _SPECIAL}
    named |= extra if isinstance(extra, dict) else {}
    names = {key: text for key, token in named.items() if (text := _name(token))}
    if not whole and settings.get("add_bos_token") is True and "bos_token" in names:
        first = [number(names["bos_token"])]  # OPT
    own = number(names["eos_token"]) if "eos_token" in names else None
    ends = ends_of(number, [*(given[0] if isinstance(given[0], list) else given), own])
    # A text ends with these, and a prompt goes on.
    closing = ends | {number(names[key]) for key in ("eos_token", "sep_token") if key in names}
    default, others = chat_templates(folder, settings)
    behind = tuple(token for token in last if token not in closing)
    return Tokenizer(codec, tuple(first), ends, default, names, behind, others)


def _of_pairs(folder: Path, settings: dict[str, Any]) -> bytes:
    """A `tokenizer.json` of GPT 2's two files, whose special tokens `settings` get."""
    kind = str(settings.get("tokenizer_class", settings.get("model_type"))).lower()
    if not all(lexists(folder / name) for name in PAIRS) or not kind.startswith(("gpt", "opt")):
        raise UserError("this folder has no tokenizer.json", location=str(folder))
    for name in ("bos", "eos", "unk"):
        settings.setdefault(f"{name}_token", "<|endoftext|>")
    vocabulary, merges = json_object(folder / PAIRS[0]), read_text(folder / PAIRS[1]).split("\n")
    pairs = [pair for pair in merges if pair and not pair.startswith("#version")]
    letters = {"type": "ByteLevel", "add_prefix_space": settings.get("add_prefix_space") is True}
    letters |= {"trim_offsets": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": pairs}
    return json.dumps({"model": model, "pre_tokenizer": letters, "decoder": letters}).encode()


def _added(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Arguments of `AddedToken` for what settings add to `tokenizer.json`, as in `transformers`."""
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
    named = {token["content"] for token in others}
    return [
        {"content": t, "special": t in named, "normalized": t not in named, "unless_known": True}
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
        texts = {name: found[name] for name in sorted(found) if only_text(found[name])}
        return texts.pop("default", None), texts
    return only_text(found), {}


def _name(token: Any) -> str | None:
    """A token in a config is its text, or an object that has it."""
    return only_text(token.get("content") if isinstance(token, dict) else token)
