"""A conversation as the prompt a model was trained on: its own template, in Jinja's sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER
from jq.language.tokenizer import Tokenizer
from jq.models._extras import need

# Characters of a prompt: so many times those of the messages, and so many besides.
_TIMES, _BESIDES = 16, 1 << 20


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt of `messages` (`{"role": "user", "content": ...}`) for the model to answer.

    A template comes with the model, hence from anybody: it runs in a sandbox, without access to
    Python's objects, and in a process of its own, with limits of time and memory.

    Raises:
        UserError: the model has no template, or the template fails, is no text, refuses the
            messages, or makes far more of them than they are.
    """
    if tokenizer.template is None:
        raise UserError("this model has no chat template", hint="leave out --chat")
    try:
        template = tokenizer.template.encode()
    except UnicodeEncodeError as error:  # JSON has a way to write half of a character
        raise UserError(f"the chat template is no Unicode text: {error.reason}") from error
    found: str = WORKER.ask(
        f"{__name__}:rendered",
        template,
        "the chat template",
        messages=list(messages),
        names=dict(tokenizer.names),
    )
    return found


def rendered(template: bytes, messages: list[Any], names: dict[str, str]) -> str:
    """The prompt. Runs in a process that has limits (`jq.base.guard`): a template may never end."""
    jinja, sandbox = need("jinja2"), need("jinja2.sandbox")
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(message: str) -> None:
        raise UserError(f"the chat template refuses these messages: {message}")

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = _now
    try:
        text: str = environment.from_string(template.decode()).render(
            messages=messages, add_generation_prompt=True, **names
        )
    except UserError:
        raise
    except (jinja.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UserError(f"the chat template fails: {error}") from error
    # Much longer ones take a tokenizer minutes, and fit into no context.
    most = _TIMES * sum(len(str(message.get("content"))) for message in messages) + _BESIDES
    if len(text) > most:
        raise UserError(f"the chat template makes {len(text)} characters, at most {most} are taken")
    return text


def _now(form: str) -> Any:
    from datetime import datetime

    return datetime.now().strftime(form)
