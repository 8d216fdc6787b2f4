#!/usr/bin/env python3
"""Writes tests/language/transformers_prompts.json: what `transformers` makes of chat templates.

pip install transformers jinja2   # elsewhere: the tests need neither torch nor these
python scripts/oracles/write_transformers_prompts.py tests/language/transformers_prompts.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
LOOP = "{% for m in messages %}"
TEMPLATES = {
    "generation": LOOP + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!\n"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}|{% endfor %}",
    "generation keeps names": "{% set x = 1 %}{%- generation -%}{% set x = 2 %}{{ x }}"
    "{%- endgeneration -%}{{ x }}",
    "break": LOOP + "{% if loop.index == 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "continue": LOOP + "{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.content }};"
    "{% endfor %}",
    "tojson": "{{ messages | tojson }}",
    "tojson of letters": "{{ messages[0] | tojson(ensure_ascii=True, sort_keys=True) }}",
    "tojson indented": "{{ messages | tojson(indent=2) }}{{ {'b': 1, 'a': none} | tojson }}",
    "tojson apart": "{{ [1, 2, {'a': true}] | tojson(separators=(',', ':')) }}",
    "no tools": "{{ tools is none }} {{ tools is defined }} {{ documents is none }} "
    "{{ tools is not none and 'tools' or 'no tools' }} {{ unknown is defined }}",
    "names": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ add_generation_prompt }}",
    "blocks": "{% if true %}\n  {% set a = 1 %}\n  x\n{% endif %}\ny\n",
    "no key for none": LOOP + "{{ 'name' in m }} {{ m.get('tool_calls') }};{% endfor %}",
    "thoughts": LOOP + "{{ m.reasoning_content }},{{ m.thinking }},{{ m.reasoning }};{% endfor %}",
    "namespace": "{% set ns = namespace(a=1) %}" + LOOP + "{% set ns.a = ns.a + 1 %}{% endfor %}"
    "{{ ns.a }}",
    "namespace with a line": "{% set ns = namespace(_a=1) %}{{ ns._a }}",
    "namespace of names": "{% set ns = namespace({'a': 2}, b=3) %}{{ ns.a + ns.b }}",
    "raise": "{{ raise_exception('roles <must> alternate') }}",
    "change": "{{ messages.append(1) }}",
    "out": "{{ ''.__class__.__mro__ }}",
    "text of none": "{{ messages[9].content + 'a' }}",
    "html": "{{ messages[0].content }}{{ '<' | e }}",
    "dates": "{{ strftime_now('%%') }}",
    "dict": "{{ dict(a=1, b=2) | tojson }} {{ dict.fromkeys(['x'], 0) }} "
    "{{ dict([('k', 'v')]).k }}",
    "dict that changes": "{% set _ = dict.update(messages[0], {'content': 'x'}) %}"
    "{{ messages[0].content }}",
    "slices": "{{ messages[1:] | length }} {{ messages[0]['role'].upper().startswith('U') }}",
}
CHATS = [
    [{"role": "user", "content": "a <b> & 'é' \u65e5\u672c \U0001f642"}],
    [
        {"role": "system", "content": "Be\nbrief."},
        {"role": "user", "content": "a", "name": None},
        {"role": "assistant", "content": "b", "reasoning": "hm", "tool_calls": None},
        {"role": "user", "content": "c"},
    ],
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "thinking": "t", "reasoning_content": None},
        {"role": "user", "content": [{"type": "text", "text": "\u00fc"}]},
    ],
]

# A template that reads all that one can be given, and ways to ask.
WHOLE = (
    "{{ bos_token }}{% if enable_thinking is defined %}<{{ enable_thinking }}>{% endif %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for d in documents or [] %}[{{ d.title }}: {{ d['text'] }}]{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content or [] %}{{ part.text }}{% endfor %}{% endif %}"
    "{{ (m.tool_calls | tojson) if m.tool_calls else '' }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRIPS = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"
UPPER = "{% for m in messages %}[{{ m.content | replace('b', 'c') }}]{% endfor %}"
MODEL = {"default": WHOLE, "tool_use": "T" + WHOLE, "rag": "R" + WHOLE}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a<": "\u00e9"}}}
ASK = {"role": "user", "content": "a"}
SAID = [ASK, {"role": "assistant", "content": "b "}]
PARTS = [ASK, {"role": "assistant", "content": [{"type": "text", "text": "p"}, {"type": "image"}]}]
THOUGHT = [ASK, {"role": "assistant", "content": "b", "thinking": "t"}]
CALL = [
    {"role": "assistant", "content": None, "tool_calls": [TOOL]},
    {"role": "tool", "content": "2"},
]
CALLS: list[tuple[Any, Any, dict[str, Any]]] = [
    (MODEL, SAID, {"add_generation_prompt": True}),
    (MODEL, SAID, {"add_generation_prompt": False}),
    (MODEL, SAID, {"continue_final_message": True}),
    (WHOLE, SAID, {"continue_final_message": True}),
    (STRIPS, SAID, {"continue_final_message": True}),
    (UPPER, SAID, {"continue_final_message": True}),
    (WHOLE, SAID, {"continue_final_message": True, "add_generation_prompt": True}),
    (WHOLE, PARTS, {"continue_final_message": True}),
    (WHOLE, THOUGHT, {"continue_final_message": "reasoning_content"}),
    (WHOLE, THOUGHT, {"continue_final_message": "thinking"}),
    (WHOLE, SAID, {"continue_final_message": "thinking"}),
    (WHOLE, SAID, {"continue_final_message": "other"}),
    ("{{ messages[0].content }}", SAID, {"continue_final_message": True}),
    (MODEL, [ASK, *CALL], {"tools": [TOOL]}),
    (WHOLE, [ASK, *CALL], {"tools": [TOOL], "add_generation_prompt": True}),
    (MODEL, [ASK], {"tools": []}),
    (WHOLE, [ASK], {"tools": []}),
    (MODEL, [ASK], {"documents": [{"title": "t", "text": "x <y>"}]}),
    (MODEL, [ASK], {"documents": ["text"]}),
    (MODEL, [ASK], {"chat_template": "rag", "documents": []}),
    (MODEL, [ASK], {"chat_template": "rag", "tools": [TOOL]}),
    (MODEL, [ASK], {"chat_template": "{{ messages[0].content }}!"}),
    (WHOLE, [ASK], {"chat_template": "{{ eos_token }}"}),
    (WHOLE, [ASK], {"enable_thinking": False}),
    (WHOLE, [ASK], {"enable_thinking": None, "bos_token": "<b>"}),
    ({"rag": WHOLE}, [ASK], {"chat_template": "rag"}),
    ({"rag": WHOLE}, [ASK], {}),
    ({"tool_use": "T" + WHOLE}, [ASK], {"tools": [TOOL]}),
]


def asked() -> list[dict[str, Any]]:
    """The prompt of each of `CALLS`; None where it is refused."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    plain, found = Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), []
    for template, chat, options in CALLS:
        given = {"tokenizer_object": plain, "chat_template": template, **NAMES}
        try:
            model = PreTrainedTokenizerFast(**given)
            text = model.apply_chat_template(chat, tokenize=False, **options)
        except Exception as error:
            print(f"{options}: {type(error).__name__}: {error}")
            text = None
        found.append({"template": template, "chat": chat, "options": options, "prompt": text})
    return found


def main() -> None:
    from transformers.utils import chat_template_utils as utils

    prompts: dict[str, list[str | None]] = {}
    for name, template in TEMPLATES.items():
        prompts[name] = []
        for chat in CHATS:
            messages = utils._normalize_chat_messages(chat)
            try:
                (text,), _ = utils.render_jinja_template(
                    [messages], chat_template=template, add_generation_prompt=True, **NAMES
                )
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}")
                text = None
            prompts[name].append(text)
    found = {"names": NAMES, "templates": TEMPLATES, "chats": CHATS, "prompts": prompts}
    found["calls"] = asked()
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
