"""Tokenizers from GGUF metadata, against the `tokenizers` library on vocabularies trained here."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from jq.base.errors import UserError
from jq.language.chat import chat_prompt
from jq.language.tokenizer import Tokenizer, tokenizer_of_gguf
from jq.language.vocabularies import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    USER_DEFINED,
    WORDS,
    SentencePiece,
)

TEXTS = [
    "The three states of matter are solids, liquids and gases.",
    "def fibonacci(n):\n    if n == 0:\n        return 0",
    "Größe, naïve café, Ελληνικά, русский текст, עברית, العربية",
    "日本語のテキスト と 한국어 텍스트 🙂👩‍👩‍👧 \u0301",
    "  many   spaces\t\ttabs\n\n\nlines 12345 67.89 it's WE'LL",
    "",
    " ",
    "<bos>not a token",
]


def naive(tokens, scores, text):
    """The definition: as long as two neighbours make a piece, merge the pair with the best."""
    pieces = {t: i for i, t in enumerate(tokens)}
    symbols = list(text.replace(" ", SPACE))
    while True:
        found = [
            (-scores[pieces[a + b]], i)
            for i, (a, b) in enumerate(pairwise(symbols))
            if a + b in pieces
        ]
        if not found:
            return symbols
        _, i = min(found)
        symbols[i : i + 2] = ["".join(symbols[i : i + 2])]


PIECES = ["a", "b", "aa", "ab", "ba", "aab", "aba", SPACE, SPACE + "a", "aaaa", "bb", "abba"]
SMALL = SentencePiece(
    [f"<0x{i:02X}>" for i in range(256)] + PIECES,
    [0.0] * 256 + [-float(i % 5) for i in range(len(PIECES))],  # some are equal
    [BYTE] * 256 + [NORMAL] * len(PIECES),
    0,
    False,
)


@given(st.text("ab c é", max_size=30))
def test_pieces_are_merged_by_score_and_the_leftmost_first(text):
    want = []
    for symbol in naive(PIECES, SMALL.scores[256:], text):
        if symbol in PIECES:
            want.append(256 + PIECES.index(symbol))
        else:
            want += symbol.encode()
    assert SMALL.encode(text) == want
    assert SMALL.decode(want) == text


def test_whole_tokens_are_found_first_and_control_tokens_only_on_demand():
    names = ["<s>", "aa", "a", "b", SPACE, "<t>"]
    kinds = [CONTROL, USER_DEFINED, NORMAL, NORMAL, NORMAL, CONTROL]
    codec = SentencePiece(names, [0.0] * 6, kinds, 0, False)
    assert codec.encode("baab") == [3, 1, 3]
    assert codec.encode("<s>a", special=True) == [0, 2]
    assert codec.encode("<s>a") != [0, 2]
    assert codec.decode([0, 1, 4, 3]) == "aa b"


def test_white_space_after_the_tokens_of_a_chat_of_phi3():
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "<|end|>", "a", SPACE, "\n"],
        "tokenizer.ggml.token_type": np.array([2, CONTROL, CONTROL] + [NORMAL] * 3, np.int32),
        "tokenizer.ggml.add_space_prefix": False,
    }
    text = "<s> a<|end|> \na\n<|end|>"
    plain = tokenizer_of_gguf(metadata, "file").encode(text, special=True)
    assert plain == [1, 4, 3, 2, 4, 5, 3, 5, 2]
    named = tokenizer_of_gguf(metadata | {"general.name": "Phi-3 mini"}, "file")
    assert named.encode(text, special=True) == [1, 4, 3, 2, 3, 5, 2]


def trained(texts):
    """A byte-level BPE of the library, and the same as metadata of a GGUF file."""
    pattern = tokenizers.Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(pattern, "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    model = json.loads(made.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].get)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": np.array(
            [CONTROL if t == "<|end|>" else NORMAL for t in vocabulary], np.int32
        ),
        "tokenizer.ggml.merges": [
            m if isinstance(m, str) else " ".join(m) for m in model["merges"]
        ],
        "tokenizer.ggml.eos_token_id": vocabulary.index("<|end|>"),
    }
    return made, metadata


def test_byte_pairs_are_those_of_the_library():
    made, metadata = trained(TEXTS * 3)
    ours = tokenizer_of_gguf(metadata, "file")
    for text in TEXTS:
        tokens = ours.encode(text)
        assert tokens == made.encode(text).ids
        assert ours.decode(tokens) == text
    end = metadata["tokenizer.ggml.eos_token_id"]
    assert ours.ends == {end}
    assert ours.encode("a<|end|>", special=True)[-1] == end
    assert end not in ours.encode("a<|end|>")


# Words by the definition of each way to cut: what comes out of this text, spaces as underscores.
TEXT = "  It's 12345 aB’s\t\tGrößeX\n\nx=-1,é e\u0301"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-2", "_|_It|'s|_12345|_aB|’|s|\t|\t|GrößeX|\n|\n|x|=-|1|,|é|_e|\u0301"),
        ("smollm", "_|_It|'s|_|1|2|3|4|5|_aB|’|s|\t|\t|GrößeX|\n|\n|x|=-|1|,|é|_e|\u0301"),
        ("llama-bpe", "_|_It|'s|_|123|45|_aB|’s|\t|\tGrößeX|\n\n|x|=-|1|,é|_e|\u0301"),
        ("qwen2", "_|_It|'s|_|1|2|3|4|5|_aB|’s|\t|\tGrößeX|\n\n|x|=-|1|,é|_e|\u0301"),
        ("qwen35", "_|_It|'s|_|1|2|3|4|5|_aB|’s|\t|\tGrößeX|\n\n|x|=-|1|,é|_e\u0301"),
        ("tekken", "_|_It|'s|_|1|2|3|4|5|_a|B|’s|\t|\tGröße|X|\n\n|x|=-|1|,é|_e\u0301"),
        ("gpt-4o", "_|_It's|_|123|45|_a|B|’s|\t|\tGröße|X|\n\n|x|=-|1|,é|_e\u0301"),
        ("deepseek-v3", "_|_It|'s|_|123|45|_aB|’|s|\t|\tGrößeX|\n\n|x|=-|1|,|é|_e\u0301"),
        ("default", "_|_It|'|s|_|123|45|_aB|’|s|\t|\t|GrößeX|\n|\n|x|=-|1|,|é|_e|\u0301"),
        ("deepseek-coder", "_|_It|'|s|_|1|2|3|4|5|_aB|’|s|\t|\tGrößeX|\n|\n|x|=|-|1|,|é|_e|\u0301"),
    ],
)
def test_words_are_cut_as_the_file_says(name, words):
    """By the library, without the merges: words are what the cuts leave."""
    cuts = tokenizers.pre_tokenizers
    splits = [cuts.Split(tokenizers.Regex(p), "isolated") for p in WORDS[name].patterns]
    found = [word for word, _ in cuts.Sequence(splits).pre_tokenize_str(TEXT)]
    assert "".join(found) == TEXT
    assert "|".join(found).replace(" ", "_") == words


@pytest.mark.parametrize("name", [name for name in WORDS if not WORDS[name].characters])
def test_every_way_to_cut_is_one_of_the_library(name):
    _, metadata = trained(TEXTS)
    ours = tokenizer_of_gguf(metadata | {"tokenizer.ggml.pre": name}, "file")
    for text in TEXTS:
        assert ours.decode(ours.encode(text)) == text


def test_the_first_token_where_the_file_does_not_say():
    """As llama.cpp has it: in front of prompts of Llama 3, and of SentencePiece vocabularies,
    whose usual numbers hold."""
    _, metadata = trained(TEXTS)
    metadata |= {"tokenizer.ggml.bos_token_id": 0}
    for name, first in (("qwen2", ()), ("llama-bpe", (0,)), ("tekken", (0,))):
        assert tokenizer_of_gguf(metadata | {"tokenizer.ggml.pre": name}, "file").first == first
    pieces = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"],
        "tokenizer.ggml.token_type": np.array([2, CONTROL, CONTROL, NORMAL], np.int32),
    }
    found = tokenizer_of_gguf(pieces, "file")
    assert found.first == (1,) and found.ends == {2} and found.encode("b")[-1] == 0
    assert tokenizer_of_gguf(pieces | {"tokenizer.ggml.add_bos_token": False}, "file").first == ()
    pieces["tokenizer.ggml.token_type"] = np.ones(4, np.int32)
    assert tokenizer_of_gguf(pieces, "file").first == ()


def test_what_is_not_known_is_refused_by_name():
    _, metadata = trained(TEXTS)
    with pytest.raises(UserError, match="wonder"):
        tokenizer_of_gguf(metadata | {"tokenizer.ggml.pre": "wonder"}, "file")
    with pytest.raises(UserError, match="rwkv"):
        tokenizer_of_gguf(metadata | {"tokenizer.ggml.model": "rwkv"}, "file")
    with pytest.raises(UserError, match="eos_token_id"):
        tokenizer_of_gguf(metadata | {"tokenizer.ggml.eos_token_id": 1 << 20}, "file")


def tokenizer(template):
    return Tokenizer(SMALL, (), frozenset(), template, {"bos_token": "<s>"})


def test_a_prompt_that_is_no_text():
    """Python makes half pairs of what is no UTF-8 on a command line."""
    with pytest.raises(UserError, match="character 2 is half of a pair"):
        tokenizer(None).encode("ab\udcff")


def test_a_template_writes_the_conversation():
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}\n"
        "{% endfor %}{% if add_generation_prompt %}[model]{% endif %}"
    )
    found = chat_prompt(tokenizer(template), [{"role": "user", "content": " hi "}])
    assert found == "<s>[user] hi\n[model]"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('roles must alternate') }}",
        "{% for %}",
        None,
    ],
)
def test_a_template_reaches_nothing_and_refuses_in_one_line(template):
    with pytest.raises(UserError, match="template"):
        chat_prompt(tokenizer(template), [{"role": "user", "content": "x"}])


def test_pieces_of_characters_and_bytes_for_those_that_have_none():
    """Gemma 4's: spaces are a letter of their own, lines are apart, and merges go by their rank."""
    letters = ["\u2581", *"ehlo", "\n"]
    merged = ["el", "\u2581h", "lo", "\u2581hel", "\n\n"]
    tokens = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), *letters, *merged]
    metadata = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([2, 3, *[6] * 256, *[1] * 11]),
        "tokenizer.ggml.merges": ["e l", "\u2581 h", "l o", "\u2581h el", "\n \n"],
        "tokenizer.ggml.bos_token_id": 1,
    }
    ours = tokenizer_of_gguf(metadata, "file")
    for text, pieces in (
        (" hello", ["\u2581hel", "lo"]),
        ("hel\n\n hel", ["h", "el", "\n\n", "\u2581hel"]),
        ("\u00e9l", ["<0xC3>", "<0xA9>", "l"]),
    ):
        assert [tokens[i] for i in ours.encode(text)] == ["<s>", *pieces]
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("deepseek-llm", "Ab\u01c5 cd", "Ab|\u01c5| cd"),
        ("deepseek-llm", "a1234b", "a|1234|b"),
        ("deepseek-llm", "x\n\ny", "x|\n|\n|y"),
        ("deepseek-llm", "\u4e2d\u6587\uff0c a ", "\u4e2d\u6587|\uff0c| a| "),
        ("deepseek-v3", "a1234 .b\u3042\u4e2d!c", "a|123|4| .|b|\u3042\u4e2d|!c"),
        ("youtu", "Ab12\uac00\u3131\uff0c\u3002", "Ab|1|2|\uac00\u3131|\uff0c\u3002"),
        ("youtu", "\u3105\u4e2d\u3042 B's", "\u3105|\u4e2d\u3042| B's"),
        ("kimi-k2", "aB\u4e2d\u6587c's 1234!/\n", "a|B|\u4e2d\u6587|c's| |123|4|!/\n"),
        ("minimax-m2", "aB\u4e2d\u6587c's 1234!/\n", "a|B\u4e2d\u6587c's| |123|4|!/\n"),
        ("exaone-moe", "ab c\u0301d  e'S 12!\n\n", "ab c\u0301d| | e|'S| |1|2|!\n|\n"),
        ("bailingmoe2", "ab 12.\n\n\n \n", "ab| |1|2|.\n\n\n| \n"),
        ("jais-2", "1234a" + " " * 23, "123|4|a|" + "|".join(" " * n for n in (16, 4, 2, 1))),
        ("jais-2", "a    b", "a|  | | b"),
    ],
)
def test_words_of_letters_of_several_kinds(name, text, words):
    cut = [text]
    for pattern in WORDS[name].patterns:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        cut = [word for part in cut for word, _ in split.pre_tokenize_str(part)]
    assert cut == words.split("|")
