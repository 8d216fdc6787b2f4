"""A conversation as the prompt a model was trained on: its own template, in Jinja's sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.base.registry import need
from jq.language.tokenizer import Tokenizer

# Characters of a prompt: so many times those of the messages, and so many besides.
_TIMES, _BESIDES = 16, 1 << 20
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "  # templates may test for it, as `transformers` writes it


def chat_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool | str = False,
    chat_template: str | None = None,
    **variables: Any,
) -> str:
    """The prompt of `messages` (`{"role": "user", "content": ...}`) for the model to answer, as
    `transformers` renders it.

    A template comes with the model, hence from anybody: it runs in a sandbox, without access to
    Python's objects, and in a process of its own, with limits of time and memory.

    Args:
        tools, documents: JSON schemas of functions that the model may call; what it may quote.
        add_generation_prompt: the prompt ends with how an answer begins; None: unless the last
            message goes on.
        continue_final_message: it goes on, in its content or in the field that is named.
        chat_template: the name of one of the model's templates, or a template.
        variables: what else the template reads, such as `enable_thinking`.

    Raises:
        UserError: the model has no template, there is no message, or the template fails, is no
            text, refuses the messages, or makes far more of them than they are."""
    if continue_final_message and add_generation_prompt:
        raise UserError("a last message that goes on, and the beginning of another are both asked")
    if add_generation_prompt is None:
        add_generation_prompt = not continue_final_message
    text = _chosen(tokenizer, chat_template, tools is not None)
    try:
        template = text.encode()
    except UnicodeEncodeError as error:  # JSON has a way to write half of a character
        raise UserError(f"the chat template is no Unicode text: {error.reason}") from error
    kept, ending = _checked(messages), None
    if continue_final_message:
        field = "content" if continue_final_message is True else continue_final_message
        kept[-1], ending = _marked(kept[-1], field, text)
    for name, some in (("tools", tools), ("documents", documents)):
        listed = isinstance(some or (), list | tuple)
        if not listed or not all(isinstance(one, Mapping) for one in some or ()):
            raise UserError(f"{name} are a list of objects as JSON has them")
    given = {"tools": tools, "documents": documents, **tokenizer.names, **variables}
    given |= {"add_generation_prompt": add_generation_prompt}
    try:
        json.dumps([kept, given])
    except (TypeError, ValueError) as error:
        raise UserError(f"a message or an option is not what JSON has: {error}") from error
    asked = f"{__name__}:rendered", template, "the chat template"
    found: str = WORKER.ask(*asked, messages=kept, given=given)
    if ending is None:
        return found
    before, mark, after = found.rpartition(_MARK.strip())
    if not mark or ending.strip() not in found:
        raise UserError("the chat template changes the last message, which cannot go on so")
    # A template that strips the text loses the mark's space, and the text its own.
    return before if after.startswith(" ") else before.rstrip()


def _chosen(tokenizer: Tokenizer, asked: str | None, tools: bool) -> str:
    """The template: the one that is asked for, that for tools, or the default one."""
    others = tokenizer.other_templates
    if asked is not None and asked != "default":
        return others.get(asked, asked)
    if tools and "tool_use" in others:
        return others["tool_use"]
    if tokenizer.template is not None:
        return tokenizer.template
    if others:
        names = ", ".join(others)
        raise UserError("of its chat templates none is the default one", hint=f"it has {names}")
    raise UserError("this model has no chat template", hint="leave out --chat")


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages without keys whose value is None: templates ask for the key. What a model thought
    has several names, of which templates know one or another."""
    if not messages or not all(isinstance(message, Mapping) for message in messages):
        raise UserError("a conversation is a list of messages, one at least, each with a role")
    kept = [{k: v for k, v in message.items() if v is not None} for message in messages]
    for i, message in enumerate(kept):
        thoughts = [message[name] for name in _THOUGHTS if name in message]
        if thoughts:
            kept[i] = {"thinking": thoughts[0], **message, "reasoning_content": thoughts[0]}
    return kept


def _marked(message: dict[str, Any], field: str, template: str) -> tuple[dict[str, Any], str]:
    """The message with a mark behind its text, or the last text of its parts; and that text."""
    value = message.get(field)
    fields = [f for f in _THOUGHTS if message.get(f) == value] if field in _THOUGHTS else [field]
    if not any(f in template for f in fields):
        raise UserError(f"the chat template does not read {field!r:.40} of messages")
    if isinstance(value, str):
        return message | dict.fromkeys(fields, value + _MARK), value
    parts = list(value) if isinstance(value, list | tuple) else []
    at = [i for i, p in enumerate(parts) if isinstance(p, Mapping) and type(p.get("text")) is str]
    if not at:
        raise UserError(f"the last message has no {field!r:.40} to go on with")
    last = parts[at[-1]]
    parts[at[-1]] = {**last, "text": last["text"] + _MARK}
    return message | {field: parts}, last["text"]


def rendered(template: bytes, messages: list[Any], given: dict[str, Any]) -> str:
    """The prompt. Runs in a process that has limits (`jq.base.guard`): a template may never end."""
    jinja = need("jinja2")
    try:
        text: str = environment().from_string(template.decode()).render(messages=messages, **given)
    except UserError:
        raise
    except (jinja.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UserError(f"the chat template fails: {error}") from error
    # Much longer ones take a tokenizer minutes, and fit into no context.
    size = sum(len(str(part)) for part in (*messages, given["tools"], given["documents"]))
    if len(text) > (most := _TIMES * size + _BESIDES):
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
        """A namespace without names of Python's own."""

        def __init__(*given: Any, **values: Any) -> None:
            plain.__init__(*given)
            for name, value in {**dict(*given[1:]), **values}.items():
                given[0][name] = value

        def __setitem__(self, name: Any, value: Any) -> None:
            if isinstance(name, str) and name.startswith("_"):
                raise jinja.exceptions.SecurityError(f"a namespace cannot hold {name!r:.40}")
            super().__setitem__(name, value)

    class Dict:
        """The type `dict` without what would change a message."""

        fromkeys = staticmethod(dict.fromkeys)

        def __call__(self, *given: Any, **values: Any) -> dict[Any, Any]:
            return dict(*given, **values)

    found = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, more.loopcontrols]
    )
    found.filters["tojson"] = _json
    found.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": Namespace,
        "dict": Dict(),
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
    form: Any = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


def _refuse(message: str) -> None:
    raise UserError(f"the chat template refuses these messages: {message}")
