"""Texts held to a JSON schema or a regular expression: valid whatever the model would say, in all
kinds of tokenizers."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.language.generation import Generation
from jq.language.grammar import grammar, vocabulary
from jq.language.sampling import Sampling
from jq.language.tokenizer import tokenizer_of_gguf
from tests.language.test_text import folder, many, pieces
from tests.language.test_tokenizer import TEXTS, trained

pytest.importorskip("llguidance")

ROOM = 400


def said(tokenizer, schema=None, regex=None, seed=0, vocabulary_of=None, **options):
    """The words of a model whose logits are noise."""
    rng = np.random.default_rng(seed)

    def take(tokens, every=False):
        count = len(tokens) if every else 1
        return rng.normal(0, 3, (1, count, 1024) if every else (1, 1024)).astype(np.float32)

    session = SimpleNamespace(seconds=0.0, position=0, resume=list, take=take)
    model = SimpleNamespace(
        options=SimpleNamespace(context=2 * ROOM), tokenizer=tokenizer, session=lambda: session
    )
    form = grammar(vocabulary_of or vocabulary(tokenizer), schema, regex)
    sampling = Sampling(options.pop("temperature", 0.0), options.pop("top_k", 0), seed=seed)
    return Generation(model, [1], ROOM, sampling, grammar=form, **options)


def whole(found):
    for _ in found:
        pass
    assert found.ended == "end"
    return found.text


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["a", "bc", 'é<"']},
        "count": {"type": "integer", "minimum": 3, "maximum": 12},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "count", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 2.0, "top_k": 5}])
@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_json_of_a_schema(tmp_path, kind, options):
    made, metadata = trained(TEXTS)
    ours = tokenizer_of_gguf(metadata, "file") if kind == "file" else folder(tmp_path / "m", made)
    known = vocabulary(ours)
    for seed in range(6):
        found = json.loads(whole(said(ours, SCHEMA, None, seed, known, **options)))
        assert found.keys() == SCHEMA["properties"].keys()
        assert found["name"] in SCHEMA["properties"]["name"]["enum"]
        assert 3 <= found["count"] <= 12 and 1 <= len(found["tags"]) <= 3
        assert all(type(tag) is bool for tag in found["tags"])


@pytest.mark.parametrize("regex", ["(hi|you){1,3}", "[abhi]{2,5}y", "a", "(h|y)?o{2}"])
def test_texts_of_a_regular_expression_in_all_kinds_of_tokenizers(tmp_path, regex):
    for ours in list(many(tmp_path))[:-1]:  # words of the last one are apart
        known = vocabulary(ours)
        for seed in range(3):
            assert re.fullmatch(regex, whole(said(ours, None, regex, seed, known)))


def test_tokens_looked_up_are_held_to_the_form(tmp_path):
    ours = tokenizer_of_gguf(pieces(), "file")
    found = said(ours, None, "(ab|you){20}", lookup=4)
    assert re.fullmatch("(ab|you){20}", whole(found))


@pytest.mark.parametrize(
    ("schema", "regex", "message"),
    [
        ({"type": "nonsense"}, None, "the schema cannot be followed"),
        ({"type": "object", "dependentSchemas": {}, "not": {}}, None, "cannot be followed"),
        ({"a": object()}, None, "no JSON schema"),
        (None, "(a", "regular expression.*cannot be followed: .* unclosed group$"),
        (None, "(?=a)b", "cannot be followed"),
        ({}, "a", "both"),
        ("/nowhere/schema.json", None, "nowhere"),
    ],
)
def test_what_cannot_be_followed_is_refused(schema, regex, message):
    with pytest.raises(UserError, match=message):
        grammar(vocabulary(tokenizer_of_gguf(pieces(), "file")), schema, regex)


def test_a_text_that_is_whole_computes_no_token_more():
    """Also where it is as long as it may be."""
    ours = tokenizer_of_gguf(pieces(), "file")
    found = said(ours, None, "(ab){3}")
    calls, take = [], found.model.session().take
    found.model.session().take = lambda tokens, every=False: calls.append(tokens) or take(tokens)
    assert whole(found) == "ababab" and len(calls) == len(found.tokens)
    shorter = said(ours, None, "(ab){3}")
    shorter.max_tokens = len(found.tokens)
    assert whole(shorter) == "ababab"


def test_a_form_that_no_token_begins_is_refused():
    ours = tokenizer_of_gguf(pieces(), "file")
    with pytest.raises(UserError, match="form"):
        whole(said(ours, None, "z+"))
