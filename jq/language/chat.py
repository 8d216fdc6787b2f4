"""A conversation as the prompt a model was trained on: its own template, in Jinja's sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.language.tokenizer import Tokenizer
from jq.models._tree import need

# Characters of a prompt: so many times those of the messages, and so many besides.
_TIMES, _BESIDES = 16, 1 << 20
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt of `messages` (`{"role": "user", "content": ...}`) for the model to answer, as
    `transformers` renders it.

    A template comes with the model, hence from anybody: it runs in a sandbox, without access to
    Python's objects, and in a process of its own, with limits of time and memory.

    Raises:
        UserError: the model has no template, there is no message, or the template fails, is no
            text, refuses the messages, or makes far more of them than they are.
    """
    if tokenizer.template is None:
        if tokenizer.other_templates:
            names = ", ".join(tokenizer.other_templates)
            raise UserError("of its chat templates none is the default one", hint=f"it has {names}")
        raise UserError("this model has no chat template", hint="leave out --chat")
    try:
        template = tokenizer.template.encode()
    except UnicodeEncodeError as error:  # JSON has a way to write half of a character
        raise UserError(f"the chat template is no Unicode text: {error.reason}") from error
    found: str = WORKER.ask(
        f"{__name__}:rendered",
        template,
        "the chat template",
        messages=_checked(messages),
        names=dict(tokenizer.names),
    )
    return found


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of what JSON has, without keys whose value is None: templates ask for the key. What
    a model thought has several names, of which templates know one or another."""
    if not messages or not all(isinstance(message, Mapping) for message in messages):
        raise UserError("a conversation is a list of messages, one at least, each with a role")
    kept = [{k: v for k, v in message.items() if v is not None} for message in messages]
    for i, message in enumerate(kept):
        thoughts = [message[name] for name in _THOUGHTS if name in message]
        if thoughts:
            kept[i] = {"thinking": thoughts[0], **message, "reasoning_content": thoughts[0]}
    try:
        json.dumps(kept)
    except (TypeError, ValueError) as error:
        raise UserError(f"a message holds what JSON does not have: {error}") from error
    return kept


def rendered(template: bytes, messages: list[Any], names: dict[str, str]) -> str:
    """The prompt. Runs in a process that has limits (`jq.base.guard`): a template may never end."""
    jinja = need("jinja2")
    given: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
    try:
        made = environment().from_string(template.decode())
        text: str = made.render(**given, **{"tools": None, "documents": None, **names})
    except UserError:
        raise
    except (jinja.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UserError(f"the chat template fails: {error}") from error
    # Much longer ones take a tokenizer minutes, and fit into no context.
    most = _TIMES * sum(len(str(message.get("content"))) for message in messages) + _BESIDES
    if len(text) > most:
        raise UserError(f"the chat template makes {len(text)} characters, at most {most} are taken")
    return text


def environment() -> Any:
    """Jinja's sandbox with blocks that stand alone on a line leaving no line behind, `break` and
    `continue`, `{% generation %}`, and `tojson` and `namespace` as `transformers` has them."""
    jinja, sandbox, more = need("jinja2"), need("jinja2.sandbox"), need("jinja2.ext")
    extension: Any = more.Extension
    plain: Any = jinja.utils.Namespace

    class Generation(extension):
        """Marks what an assistant said, for training; the text is that of the block's body."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("body"), [], [], body, lineno=line)

        def body(self, caller: Any) -> Any:
            return caller()

    class Namespace(plain):
        """Without names of Python's own."""

        def __init__(*given: Any, **values: Any) -> None:
            plain.__init__(*given)
            for name, value in {**dict(*given[1:]), **values}.items():
                given[0][name] = value

        def __setitem__(self, name: Any, value: Any) -> None:
            if isinstance(name, str) and name.startswith("_"):
                raise jinja.exceptions.SecurityError(f"a namespace cannot hold {name!r:.40}")
            super().__setitem__(name, value)

    found = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, more.loopcontrols]
    )
    found.filters["tojson"] = _json
    found.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": Namespace,
    }
    return found


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape HTML and all that is not ASCII, and sort keys."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise UserError(f"the chat template refuses these messages: {message}")
