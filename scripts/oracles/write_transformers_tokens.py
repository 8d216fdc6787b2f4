#!/usr/bin/env python3
"""Writes tests/language/transformers_tokens.json: what `transformers` makes of folders of a small
tokenizer: tokens of texts, texts of tokens, names of special tokens, and tokens that end.

pip install transformers jinja2   # elsewhere: the tests need neither torch nor these
python scripts/oracles/write_transformers_tokens.py tests/language/transformers_tokens.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

SPECIAL = ["<unk>", "<s>", "</s>", "<sep>", "<more>"]
PIECES = [*SPECIAL, "\u2581", *"abhi", "hi", "\u2581hi", "<", ">", "x", "1", "s", "/"]
TEXTS = ["ab", " hi", "<s>hi", "hi</s> a", "hi <x1> a", "b<x1>", "hi <more> a", "<x2><x3>b <x9>"]
BASE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "<sep>"}
BASE["tokenizer_class"] = "PreTrainedTokenizerFast"
X = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
X |= {"content": "<x1>", "special": True}  # type: ignore[dict-item]
MORE, NEW = {**X, "content": "<more>"}, str(len(PIECES))


def tokenizer(post_processor: Any = None, **more: Any) -> dict[str, Any]:
    """A `tokenizer.json` of pieces of characters; `more`: what is otherwise of `<more>`."""
    listed = [{**X, "id": i, "content": t} for i, t in enumerate(SPECIAL)]
    listed[-1] |= more
    space = {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "first",
        "split": False,
    }
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(PIECES)}, "unk_token": "<unk>"}
    model |= {"merges": [["h", "i"], ["\u2581", "hi"]]}
    found = {"version": "1.0", "added_tokens": listed, "model": model, "pre_tokenizer": space}
    return found | {"decoder": space, "post_processor": post_processor}


def around(*names: str) -> dict[str, Any]:
    """A template of names of tokens, `$A` for the text."""

    def part(name: str) -> dict[str, Any]:
        if name == "$A":
            return {"Sequence": {"id": "A", "type_id": 0}}
        return {"SpecialToken": {"id": name, "type_id": 0}}

    used = {n: {"id": n, "ids": [PIECES.index(n)], "tokens": [n]} for n in names if n != "$A"}
    pair = [part("$A"), {"Sequence": {"id": "B", "type_id": 1}}]
    single = [part(name) for name in names]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": used}


BEGUN = around("<s>", "$A")
MANY = {**BEGUN, "single": [{"SpecialToken": {"id": "two", "type_id": 0}}, *BEGUN["single"][1:]]}
MANY["special_tokens"] = {"two": {"id": "two", "ids": [1, 4], "tokens": ["<s>", "<more>"]}}
PAIR: dict[str, Any] = {"sep": ["</s>", 2], "cls": ["<s>", 1]}
OFF = {"trim_offsets": True, "add_prefix_space": True}
PROCESSORS = {
    "none": None,
    "both": around("<s>", "$A", "</s>"),
    "more": around("<s>", "$A", "<more>"),
    "front": around("<sep>", "<s>", "$A"),
    "twice": around("<s>", "<s>", "$A", "</s>", "</s>"),
    "unk": around("<unk>", "$A"),
    "many": MANY,
    "bert": {"type": "BertProcessing", **PAIR},
    "roberta": {"type": "RobertaProcessing", **PAIR, **OFF},
    "letters": {"type": "ByteLevel", **OFF, "use_regex": True},
    "series": {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", **OFF, "use_regex": True},
            around("<s>", "$A", "</s>"),
        ],
    },
    "two": {"type": "Sequence", "processors": [BEGUN, around("<more>", "$A", "<sep>")]},
}
LATER = {"content": "<x2>"}
CONFIGS: dict[str, dict[str, Any]] = {
    "added": {"added_tokens_decoder": {NEW: X}},
    "added, plain": {"added_tokens_decoder": {NEW: {**X, "special": False}}},
    "added, one word": {"added_tokens_decoder": {NEW: {**X, "single_word": True}}},
    "added, space around": {"added_tokens_decoder": {NEW: {**X, "lstrip": True, "rstrip": True}}},
    "added twice": {
        "added_tokens_decoder": {"100": {**X, **LATER}, NEW: X, "9": {**X, "content": "<x9>"}},
        "extra_special_tokens": ["<x3>", "<x1>"],
    },
    "added, a word": {"added_tokens_decoder": {"10": {**X, "content": "hi", "special": False}}},
    "more, not special": {"added_tokens_decoder": {"4": {**MORE, "special": False}}},
    "more, space around": {"added_tokens_decoder": {"4": {**MORE, "lstrip": True, "rstrip": True}}},
    "extra by name": {"extra_special_tokens": {"image_token": "<x1>", "other_token": "<more>"}},
    "extra": {"extra_special_tokens": ["<x1>", "<x2>"]},
    "additional": {"additional_special_tokens": ["<x1>", "<x2>"]},
    "named": {"cls_token": "<x1>"},
    "named word": {"pad_token": "hi"},
    "no beginning asked": {"add_bos_token": False},
    "an end asked": {"add_bos_token": True, "add_eos_token": True},
    "spaces": {"clean_up_tokenization_spaces": True},
    "special ones are split": {"split_special_tokens": True},
    "special ones are not split": {"split_special_tokens": False},
}
# Of a file that has the numbers of tokens alone, where `tokenizer_config.json` does not list them.
OLD: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "plain": ({"<x1>": len(PIECES)}, {}),
    "special": ({"<x1>": len(PIECES)}, {"extra_special_tokens": ["<x1>"]}),
    "in order": ({"<x2>": len(PIECES) + 1, "<x1>": len(PIECES)}, {"pad_token": "<x2>"}),
    "known": ({"<more>": 4}, {}),
    "known and new": ({"<more>": 4, "<x3>": len(PIECES)}, {"cls_token": "<more>"}),
    "listed": ({"<x1>": len(PIECES)}, {"added_tokens_decoder": {NEW: {**X, **LATER}}}),
    "listed by no one": ({"<x1>": len(PIECES)}, {"added_tokens_decoder": {}}),
}
_PLAIN_MODEL = {"model_type": "llama", "vocab_size": 64}
ENDS: dict[str, dict[str, Any]] = {
    "config": {"config.json": {"eos_token_id": 3}},
    "list": {"config.json": {"eos_token_id": [3, 4]}},
    "generation": {
        "config.json": {"eos_token_id": 3},
        "generation_config.json": {"eos_token_id": 4},
    },
    "list in generation": {"generation_config.json": {"eos_token_id": [4, 3]}},
    "zero": {"generation_config.json": {"eos_token_id": 0}},
    "of the text": {
        "config.json": {"model_type": "gemma3", "text_config": {"eos_token_id": [3, 4]}}
    },
}


def cases() -> dict[str, dict[str, Any]]:
    """Files of folders by name."""
    found = {f"processor {n}": {"tokenizer.json": tokenizer(p)} for n, p in PROCESSORS.items()}
    for name, own in CONFIGS.items():
        files = {"tokenizer.json": tokenizer(BEGUN), "tokenizer_config.json": BASE | own}
        found[name] = files
    for name, (numbers, own) in OLD.items():
        files = {"tokenizer.json": tokenizer(BEGUN), "tokenizer_config.json": BASE | own}
        found[f"added of old, {name}"] = {**files, "added_tokens.json": numbers}
    plain = tokenizer(BEGUN, special=False)
    for name in ("more, special", "more, named"):
        own = {"cls_token": "<more>"} if "named" in name else {"added_tokens_decoder": {"4": MORE}}
        found[name] = {"tokenizer.json": plain, "tokenizer_config.json": BASE | own}
    found["map"] = {
        "tokenizer_config.json": {**BASE, "bos_token": None},
        "special_tokens_map.json": {**BASE, "mask_token": "<x1>"},
    }
    for name, files in ENDS.items():
        found[f"ends by {name}"] = files
    whole = {"tokenizer.json": tokenizer(BEGUN), "tokenizer_config.json": BASE}
    return {name: {**whole, **files} for name, files in found.items()}


def read(folder: Path) -> dict[str, Any]:
    """Tokens, names and ends that `transformers` makes of a folder."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    made = AutoTokenizer.from_pretrained(folder)
    if (folder / "generation_config.json").exists():
        generation = GenerationConfig.from_pretrained(folder)
    else:
        generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder))
    plain = [made(text, add_special_tokens=False).input_ids for text in TEXTS]
    whole = made(TEXTS[0]).input_ids
    at = next(i for i in range(len(whole)) if whole[i : i + len(plain[0])] == plain[0])
    return {
        "first": whole[:at],
        "last": whole[at + len(plain[0]) :],
        "tokens": plain,
        "texts": [made.decode(tokens, skip_special_tokens=True) for tokens in plain],
        "names": made.special_tokens_map,
        "ends": generation.eos_token_id,
    }


def main() -> None:
    found = {}
    for name, files in cases().items():
        with tempfile.TemporaryDirectory() as work:
            config = _PLAIN_MODEL | files.get("config.json", {})
            for file, content in {**files, "config.json": config}.items():
                (Path(work) / file).write_text(json.dumps(content), encoding="utf-8")
            found[name] = {"files": {**files, "config.json": config}, **read(Path(work))}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in found.items())
    text = f'{{"texts": {json.dumps(TEXTS)}, "cases": {{\n{lines}\n}}}}\n'
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
