"""Chat templates against `transformers`: the same prompt, or refused by both.

    scripts/check.py chat_templates FOLDER --peer PYTHON [--all]

FOLDER holds templates (`*.jinja`, such as models/templates of llama.cpp), PYTHON is an interpreter
that has `transformers` and `jinja2`. Three chats of each: a question, several turns with a system,
and turns with thoughts; with --all also calls of tools, parts of text, turns that do not alternate
and roles that templates may not know.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.language.chat import _checked, rendered

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
PEER = """
import json, sys
from transformers.utils import chat_template_utils as utils
given = json.load(sys.stdin)
def one(template, chat):
    try:
        messages = utils._normalize_chat_messages(chat)
        kept = {"chat_template": template, "add_generation_prompt": True, **given["names"]}
        return utils.render_jinja_template([messages], **kept)[0][0]
    except Exception:
        return None
print(json.dumps([[one(t, chat) for chat in given["chats"]] for t in given["templates"]]))
"""


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CALL: dict[str, Any] = {"type": "function", "id": "123456789"}
CALL |= {"function": {"name": "f", "arguments": {"a": 1, "b": "\u00e9<"}}}
ANSWER = {"tool_call_id": "123456789", "name": "f"}
CHATS = [
    [says("user", "a <b> & '\u00e9' \u65e5\u672c \U0001f642")],
    [says("system", "Be\nbrief."), says("user", "a"), says("assistant", "b"), says("user", "c")],
    [says("user", "x"), says("assistant", "y", reasoning_content="t"), says("user", "\u00fc")],
]
MORE = [
    [says("user", "w"), says("assistant", "", tool_calls=[CALL]), says("tool", "22", **ANSWER)],
    [
        says("user", "w"),
        says("assistant", None, tool_calls=[CALL], thinking="p"),
        says("tool", "1", **ANSWER),
        says("assistant", "b"),
        says("user", "c"),
    ],
    [says("user", [{"type": "text", "text": "\u00fc"}, {"type": "text", "text": "z"}])],
    [says("user", "q"), says("assistant", "<think>\nhm\n</think>\n\nyes"), says("user", "r ")],
    [says("user", "a"), says("user", "b")],
    [says("assistant", "hi"), says("user", "b")],
    [says("system", "only")],
    [says("developer", "d"), says("user", "b")],
    [says("user", "a"), says("assistant", "b")],
    [says("weird", "a")],
]


def ours(template: str, chat: list[dict[str, Any]]) -> str | None:
    try:
        given = {"tools": None, "documents": None, "add_generation_prompt": True, **NAMES}
        return rendered(template.encode(), _checked(chat), given)
    except UserError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    chats = CHATS + MORE if args.all else CHATS
    files = sorted(args.folder.glob("*.jinja"))
    templates = [file.read_text(encoding="utf-8") for file in files]
    given = json.dumps({"templates": templates, "chats": chats, "names": NAMES})
    done = subprocess.run([args.peer, "-c", PEER], input=given, text=True, capture_output=True)
    theirs = json.loads(done.stdout)
    rows = [
        (file.stem, i, ours(template, chat), want)
        for file, template, wanted in zip(files, templates, theirs, strict=True)
        for i, (chat, want) in enumerate(zip(chats, wanted, strict=True))
    ]
    for name, i, found, want in rows:
        if found != want:
            print(f"{name}, chat {i}: {found!r:.200}\n  transformers: {want!r:.200}")
    same = [want for _, _, found, want in rows if found == want]
    print(f"{len(same)} of {len(rows)} equal, {same.count(None)} of them refused by both")
    raise SystemExit(len(same) < len(rows))


if __name__ == "__main__":
    main()
