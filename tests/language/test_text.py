"""Text to tokens and back, of prompts and piece by piece, against the `tokenizers` library."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from jq.base.errors import UserError
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.generation import Generation
from jq.language.sampling import Sampling
from jq.language.tokenizer import tokenizer_of_gguf
from jq.language.vocabularies import CONTROL, NORMAL, USER_DEFINED
from tests.language.test_tokenizer import TEXTS, trained

ORACLE = json.loads((Path(__file__).parent / "transformers_tokens.json").read_text())
SPACE = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>", "<sep>", "<more>"]
PIECES = [*"abhiyou", SPACE, SPACE + "hi", SPACE + "you", "hi", "you"]
VOCABULARY = {t: i for i, t in enumerate([*SPECIAL, *dict.fromkeys(PIECES)])}
VOCABULARY |= {f"<0x{i:02X}>": len(VOCABULARY) + i for i in range(256)}


def template(text):
    used = [t for t in SPECIAL if t in text]
    return processors.TemplateProcessing(text, special_tokens=[(t, VOCABULARY[t]) for t in used])


def llama2(processor=None, decoder=None):
    """A tokenizer of the kind of Llama 2: spaces are part of words, one goes in front of a text."""
    merges = [(SPACE, "h"), (SPACE, "y"), ("h", "i"), ("y", "o"), ("yo", "u")]
    vocabulary = dict(VOCABULARY)
    for a, b in [*merges, (SPACE, "hi"), (SPACE, "you")]:
        vocabulary.setdefault(a + b, len(vocabulary))
    merges = [("h", "i"), ("y", "o"), ("yo", "u"), (SPACE, "hi"), (SPACE, "you")]
    bpe = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    made = tokenizers.Tokenizer(bpe)
    made.add_special_tokens(SPECIAL)
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    made.decoder = decoder or decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    if processor is not None:
        made.post_processor = processor
    return made


def folder(path, made, **config):
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(made.to_str())
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer_of_folder(path)


END = ("</s>", VOCABULARY["</s>"])


@pytest.mark.parametrize(
    ("processor", "first", "last"),
    [
        (None, [], []),
        (template("<s> $A </s>"), ["<s>"], []),
        (template("<s> $A"), ["<s>"], []),
        (template("$A </s>"), [], []),
        (template("<s> <more> $A </s>"), ["<s>", "<more>"], []),
        (template("</s> $A"), ["</s>"], []),
        (template("<s> $A <more>"), ["<s>"], ["<more>"]),
        (template("<s> $A <more> </s>"), ["<s>"], ["<more>"]),
        (processors.RobertaProcessing(END, ("<s>", 1)), ["<s>"], []),
        (processors.BertProcessing(("<sep>", 3), ("<s>", 1)), ["<s>"], []),
        (processors.ByteLevel(), [], []),
        (processors.Sequence([processors.ByteLevel(), template("<s> $A </s>")]), ["<s>"], []),
    ],
)
def test_what_a_post_processor_puts_around_a_prompt(tmp_path, processor, first, last):
    """All of it where it puts it, but for what ends a text: a prompt goes on."""
    made = llama2(processor)
    ours = folder(tmp_path / "m", made, eos_token="</s>", sep_token="<sep>")
    for text in ("ab", "hi you", "", "a b"):
        plain = made.encode(text, add_special_tokens=False).ids
        numbers = [[VOCABULARY[t] for t in some] for some in (first, last)]
        assert ours.encode(text) == [*numbers[0], *plain, *numbers[1]]
        whole = made.encode(text).ids
        ends = {VOCABULARY["</s>"], VOCABULARY["<sep>"]} - set(first)
        front = len(first)
        kept = [t for t in whole[front:] if t not in ends]
        assert ours.encode(text) == [*whole[:front], *kept]
    chat = [*first, *last]
    assert ours.encode("".join(first) + "hi", special=True)[: len(first)] == numbers[0]
    assert not last or ours.encode("hi", special=True)[-1] != VOCABULARY[chat[-1]]


@pytest.mark.parametrize("name", ORACLE["cases"])
def test_a_folder_is_read_as_transformers_reads_it(tmp_path, name):
    """Special tokens and others that its settings add, what goes around a prompt, and what ends;
    without the tokens behind a prompt that end it."""
    case = ORACLE["cases"][name]
    for file, content in case["files"].items():
        (tmp_path / file).write_text(json.dumps(content))
    ours = tokenizer_of_folder(tmp_path)
    given = case["ends"] if isinstance(case["ends"], list) else [case["ends"]]
    assert ours.ends == {*given, 2}  # `</s>` by its name
    closing = {2, 3} if "sep_token" in ours.names else {2}
    assert list(ours.first) == case["first"]
    assert list(ours.last) == [t for t in case["last"] if t not in ours.ends | closing]
    assert dict(ours.names) == case["names"]
    for text, tokens, back in zip(ORACLE["texts"], case["tokens"], case["texts"], strict=True):
        assert ours.codec.encode(text, special=True) == tokens
        assert ours.codec.decode(tokens, begins=True) == back


def test_added_tokens_are_objects(tmp_path):
    with pytest.raises(UserError, match="added_tokens_decoder has 'special'"):
        folder(tmp_path, llama2(), added_tokens_decoder={"0": "special"})
    (tmp_path / "added_tokens.json").write_text('{"<x1>": "5"}')
    with pytest.raises(UserError, match="added_tokens.json has no number for '<x1>'"):
        folder(tmp_path, llama2())


def generation(tokenizer, tokens, stop=()):
    """Generation by a model that says these tokens."""
    rows = iter(np.eye(1024, dtype=np.float32)[[*tokens, 1]])
    session = SimpleNamespace(seconds=0.0, position=0)
    session.resume = list
    session.take = lambda tokens, every=False: next(rows)[None]
    model = SimpleNamespace(
        options=SimpleNamespace(context=99), tokenizer=tokenizer, session=lambda: session
    )
    return Generation(model, [1], len(tokens), Sampling(), stop)


METASPACE = decoders.Metaspace(SPACE, "always")


def many(path):
    """A tokenizer of each kind."""
    template_of = template("<s> $A")
    made, metadata = trained(TEXTS)
    yield folder(path / "llama2", llama2(template_of))
    yield folder(path / "metaspace", llama2(template_of, METASPACE))
    yield folder(path / "no-first", llama2())
    yield folder(path / "bytes", made)
    yield tokenizer_of_gguf(metadata, "file")
    yield tokenizer_of_gguf(pieces(), "file")
    yield tokenizer_of_gguf(pieces() | {"tokenizer.ggml.add_space_prefix": False}, "file")
    words = tokenizers.Tokenizer(
        models.WordPiece({"a": 0, "##b": 1, "hi": 2, "[UNK]": 3, "##you": 4}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.WordPiece()
    yield folder(path / "words", words)


def pieces():
    words = [SPACE + "hi", SPACE + "you", SPACE + "h", SPACE + "y", SPACE + "yo", SPACE]
    tokens = ["<unk>", "<s>", "</s>", *words, *"abhiyou"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": -np.arange(len(tokens), dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [NORMAL] * (len(tokens) - 3)),
    }


def test_text_token_by_token_is_the_text(tmp_path):
    """Tokenizers of all kinds, and text as behind a prompt: with the space in front."""
    for ours in many(tmp_path):
        for text in ("hi you", "a b", "you hi a", "ab"):
            tokens = ours.encode(text)[len(ours.first) :]
            found = "".join(ours.decode([token]) for token in tokens)
            assert found == ours.decode(tokens)
            assert "".join(generation(ours, tokens).pieces()) == found


def test_a_whole_text_comes_back(tmp_path):
    for made in (llama2(template("<s> $A")), llama2(template("<s> $A"), METASPACE)):
        ours = folder(tmp_path / "m", made)
        for text in ("hi you", " hi", "a b "):
            assert ours.decode(ours.encode(text)) == made.decode(made.encode(text).ids) == text
    ours = tokenizer_of_gguf(pieces(), "file")
    assert ours.decode(ours.encode("hi you")) == "hi you"
    assert ours.decode(ours.encode(" hi")) == " hi"


@pytest.mark.parametrize("stop", [" hi", " you", "i y"])
def test_a_text_to_stop_at_may_begin_with_a_space(tmp_path, stop):
    ours = folder(tmp_path / "m", llama2(template("<s> $A")))
    tokens = [VOCABULARY[SPACE + "hi"], VOCABULARY[SPACE + "you"]]
    found = generation(ours, tokens, [stop])
    assert "".join(found.pieces()) == " hi you"[: " hi you".index(stop)]
    assert found.ended == "stop"


NAMES = ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|return|>", "<|call|>", "<turn|>"]
NAMES += ["<|im_end|>", "</s>", "<eos>", "[EOS]", "<fim_pad>", "<reponame>", "<|tool_response>"]


@pytest.mark.parametrize("kind", [CONTROL, USER_DEFINED, NORMAL])
def test_tokens_that_end_by_their_names(tmp_path, kind):
    tokens = ["a", *NAMES, "<|start|>"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([NORMAL] + [kind] * (len(tokens) - 1)),
    }
    want = set(range(1, len(NAMES) + 1))
    assert tokenizer_of_gguf(metadata, "file").ends == want
    made = tokenizers.Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, "a"))
    assert folder(tmp_path / "m", made).ends == want


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["<|end|>"], [1]),
        (["<|end|>", "<|return|>"], [1, 2]),
        (["<|end|>", "<|return|>", "<|call|>"], [2, 3]),
        (["<|end|>", "<|calls|>", "<|flush|>"], [2, 3]),
    ],
)
def test_what_ends_a_part_of_an_answer_does_not_end_it(tmp_path, names, ends):
    made = tokenizers.Tokenizer(models.WordLevel({t: i for i, t in enumerate(["a", *names])}, "a"))
    assert folder(tmp_path / "m", made).ends == set(ends)


@pytest.mark.parametrize("key", ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"])
def test_tokens_that_end_by_the_keys_of_a_file(key):
    metadata = pieces() | {f"tokenizer.ggml.{key}_token_id": 6}
    assert 6 in tokenizer_of_gguf(metadata, "file").ends
