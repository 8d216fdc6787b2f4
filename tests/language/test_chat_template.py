"""Chat templates: prompts are those of `transformers` (in transformers_prompts.json), and the
template of a folder is found wherever it lies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.language.chat import chat_prompt
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.tokenizer import Tokenizer, tokenizer_of_gguf
from tests.language.test_tokenizer import SMALL, TEXTS, trained

CASES = json.loads((Path(__file__).parent / "transformers_prompts.json").read_text())
USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("name", CASES["templates"])
def test_prompts_are_those_of_transformers(name):
    model = Tokenizer(SMALL, (), frozenset(), CASES["templates"][name], CASES["names"])
    for chat, want in zip(CASES["chats"], CASES["prompts"][name], strict=True):
        if want is None:
            with pytest.raises(UserError, match="chat template"):
                chat_prompt(model, chat)
        else:
            assert chat_prompt(model, chat) == want


@pytest.mark.parametrize("call", CASES["calls"], ids=lambda c: "-".join(c["options"]) or "plain")
def test_options_are_those_of_transformers(call):
    """Its prompts begin no answer unless they are asked to."""
    given = call["template"]
    others = dict(given) if isinstance(given, dict) else {"default": given}
    default = others.pop("default", None)
    model = Tokenizer(SMALL, (), frozenset(), default, CASES["names"], other_templates=others)
    options = {"add_generation_prompt": False, **call["options"]}
    if call["prompt"] is None:
        with pytest.raises(UserError):
            chat_prompt(model, call["chat"], **options)
    else:
        assert chat_prompt(model, call["chat"], **options) == call["prompt"]


def test_the_last_text_of_parts_goes_on():
    text = "{% for part in messages[0].content %}{{ part.text or part }};{% endfor %}"
    model = Tokenizer(SMALL, (), frozenset(), text)
    parts = ["a", {"text": "b"}, {"text": "c"}]
    options = {"continue_final_message": True}
    assert chat_prompt(model, [{"role": "user", "content": parts}], **options) == "a;b;c"
    assert parts == ["a", {"text": "b"}, {"text": "c"}]
    for content in (5, ["a"], {"text": "b"}, None):
        with pytest.raises(UserError, match="no 'content' to go on with"):
            chat_prompt(model, [{"role": "user", "content": content}], **options)


def test_a_prompt_begins_an_answer_unless_the_last_message_goes_on():
    model = Tokenizer(
        SMALL, (), frozenset(), "{{ messages[0].content }}{{ add_generation_prompt }}"
    )
    assert chat_prompt(model, USER) == "hiTrue"
    assert chat_prompt(model, USER, continue_final_message=True) == "hi"


@pytest.mark.parametrize("messages", [[], ["hi"], [{"role": "user", "content": object()}]])
def test_what_is_no_conversation_is_refused(messages):
    with pytest.raises(UserError, match="message"):
        chat_prompt(Tokenizer(SMALL, (), frozenset(), "{{ messages }}"), messages)


NAMED = [{"name": "default", "template": "d{{ bos_token }}"}, {"name": "tool_use", "template": "t"}]
BEGIN = {"bos_token": {"content": "<s>"}}


@pytest.mark.parametrize(
    ("files", "prompt"),
    [
        ({"tokenizer_config.json": {"chat_template": "c"}}, "c"),
        ({"tokenizer_config.json": {"chat_template": NAMED, **BEGIN}}, "d<s>"),
        ({"tokenizer_config.json": {"chat_template": NAMED[::-1]}}, "d"),
        ({"tokenizer_config.json": {"chat_template": {"default": "d", "rag": "r"}}}, "d"),
        ({"chat_template.json": {"chat_template": "j{{ eos_token }}"}}, "j"),
        ({"chat_template.json": {"chat_template": NAMED}}, "d"),
        ({"processor_config.json": {"chat_template": "p"}}, "p"),
        ({"chat_template.jinja": "f"}, "f"),
        ({"chat_template.jinja": "f", "additional_chat_templates/rag.jinja": "r"}, "f"),
        ({"chat_template.jinja": "f", "tokenizer_config.json": {"chat_template": "c"}}, "f"),
        (
            {
                "chat_template.json": {"chat_template": "j"},
                "tokenizer_config.json": {"chat_template": "c"},
            },
            "c",
        ),
        ({"special_tokens_map.json": BEGIN, "chat_template.jinja": "{{ bos_token }}"}, "<s>"),
        ({"tokenizer_config.json": {"chat_template": "{{ unk_token }}", "unk_token": "u"}}, "u"),
    ],
)
def test_where_a_template_lies(tmp_path, files, prompt):
    folder = folder_of(tmp_path, files)
    assert chat_prompt(tokenizer_of_folder(folder), USER) == prompt


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (NAMED[1:], "none is the default one.*\n?.*tool_use"),
        ({"rag": "r", "tool_use": "t"}, "rag, tool_use"),
        ([], "no chat template"),
        (3, "no chat template"),
    ],
)
def test_templates_without_a_default_one_are_named(tmp_path, template, message):
    folder = folder_of(tmp_path, {"tokenizer_config.json": {"chat_template": template}})
    with pytest.raises(UserError) as info:
        chat_prompt(tokenizer_of_folder(folder), USER)
    assert re.search(message, f"{info.value} {info.value.hint}")


def test_named_templates_of_a_folder(tmp_path):
    """Files of their own go in front of settings, all of them."""
    files = {"additional_chat_templates/rag.jinja": "r", "additional_chat_templates/b.jinja": "b"}
    folder = folder_of(tmp_path, {**files, "tokenizer_config.json": {"chat_template": "c"}})
    model = tokenizer_of_folder(folder)
    assert chat_prompt(model, USER, chat_template="rag") == "r"
    with pytest.raises(UserError, match="none is the default one"):
        chat_prompt(model, USER)


def test_named_templates_of_a_gguf_file():
    _, metadata = trained(TEXTS)
    metadata["tokenizer.chat_template.tool_use"] = "t"
    with pytest.raises(UserError, match="none is the default one"):
        chat_prompt(tokenizer_of_gguf(metadata, "file"), USER)
    metadata["tokenizer.chat_template"] = "d"
    assert chat_prompt(tokenizer_of_gguf(metadata, "file"), USER) == "d"
    assert chat_prompt(tokenizer_of_gguf(metadata, "file"), USER, tools=[]) == "t"


def folder_of(folder: Path, files) -> Path:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    for name, content in {"tokenizer.json": {"version": "1.0", "model": model}, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("tools", [5, "text", {"name": "f"}, [5]])
def test_tools_that_are_no_list_of_objects_are_refused(tools):
    _, metadata = trained(TEXTS)
    with pytest.raises(UserError, match="tools are a list of objects"):
        chat_prompt(tokenizer_of_gguf(metadata, "file"), USER, tools=tools, chat_template="t")
