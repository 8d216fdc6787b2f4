"""Common parts of commands: their options, their example, and how they end.

A command is a function `f(out, ...)` that returns the document for `--json`. `command` gives it
`--json`, `-q`, `-v` and `--debug`, hands it an `Output`, and turns errors into exit codes. The
`Args` of its docstring are the help of its options:

    name (-n METAVAR 1..9): help         an option, its short name, its least and largest value
    name (<METAVAR>): help               an argument"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from jq.base.errors import UserError
from jq.base.guard.limits import Limits, limited, parse_size
from jq.cli.language import is_language_model
from jq.cli.options import COMPLETE, SHARED, option
from jq.cli.output import Output, report

Command = TypeVar("Command", bound=Callable[..., Any])
EMPTY: Mapping[str, Any] = {}
COMMON = ("json", "quiet", "verbose", "debug")
OUTPUTS = ("output", "outputs", "save_pipeline")
LIMITS: dict[str, Any] = {"timeout": float | None, "max_memory": str | None}
# The groups of options in the help of a command that has many.
PANELS = {
    "Output": ("output", "emit", "stablehlo_version", "save_pipeline", "sign", "force"),
    "What is quantized": (
        *("pipeline", "settings", "rules", "calibration", "ranges"),
        *("allow_dynamic", "strict_encodings"),
    ),
    "Inputs of the model": ("sizes", "values"),
    "Compiling": ("target", "iree_flags", "calibrate", "cache", "measure"),
    "Language models": ("context", "kv_cache", "text"),
    "Every command": (*LIMITS, *COMMON),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {}  # functions and epilogs, by name


def command(
    name: str,
    *,
    example: str,
    writes: bool = False,
    asked: Mapping[str, tuple[Any, Any]] = EMPTY,
    language: tuple[str, str] | None = None,
    needs: Mapping[str, str] = EMPTY,
) -> Callable[[Command], Command]:
    """Makes a function a command of the command line, `list formats` one of a group; `example` is
    shown at the end of its help. A command that `writes` has written nothing when it is
    interrupted, and says so. Options that are `asked` for by several commands, annotation and
    default by name, reach the function as its `**asked`. `language` are the options that a language
    model has as other models do, and those that only a language model has. `needs` are options
    that have no use without another, or with it (`!other`)."""

    def register(function: Command) -> Command:
        def run(**arguments: Any) -> None:
            out = Output(**{option: arguments.pop(option) for option in COMMON})
            seconds, memory = (arguments.pop(option) for option in LIMITS)
            try:
                _require_others(signature, arguments, needs)
                if language:
                    _require_for(signature, arguments, *map(str.split, language))
                _keep_inputs(arguments)
                most = Limits(seconds, None if memory is None else parse_size(memory))
                with out.active(), limited(most):
                    document = function(out, **arguments)
                out.document(document)
            except typer.Exit:
                raise
            except BaseException as error:  # KeyboardInterrupt too: every end has its code
                raise typer.Exit(report(error, out.debug, writes)) from error
            if out.code:
                raise typer.Exit(out.code)

        signature = signature_of(function, asked)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        text, _ = told(function)
        run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        COMMANDS[name] = run, f"Example: [bold]{example}[/bold]"
        return function

    return register


def _keep_inputs(given: Mapping[str, Any]) -> None:
    """Refuses an output that would take the place of an input, whatever is forced."""
    outputs = [p for name in OUTPUTS if isinstance(p := given.get(name), Path) and p.is_file()]
    inputs = (v if isinstance(v, list) else [v] for n, v in given.items() if n not in OUTPUTS)
    for value in chain.from_iterable(inputs) if outputs else ():
        path = Path(re.sub(r"(?<=[.]py):\w+$", "", f"{value}"))
        if os.path.isfile(path) and any(map(path.samefile, outputs)):
            raise UserError(f"the output would take the place of {path}", hint="name another file")


def _require_for(
    signature: inspect.Signature, given: Mapping[str, Any], both: list[str], alone: list[str]
) -> None:
    """Refuses an option that a language model does not have, or that only one has."""
    its_own, hint = is_language_model(given["model"]), "they are .gguf files or folders"
    if its_own:
        hint = f"they take {', '.join(_flag(signature.parameters[n]) for n in both + alone)}"
    for name, parameter in signature.parameters.items():
        wrong = name not in both + alone if its_own else name in alone
        if wrong and _is_given(parameter, given) and name != "artifacts":
            flag = f"--no-{name}" if given[name] is False else _flag(parameter)
            words = "is not for" if its_own else "is for"
            raise UserError(f"{flag} {words} language models", hint=hint)


def _require_others(
    signature: inspect.Signature, given: Mapping[str, Any], needs: Mapping[str, str]
) -> None:
    """Refuses an option that has no use beside the others: it would be read over."""
    options = signature.parameters
    for names, other in needs.items():
        there, unless = _is_given(options[other.lstrip("!")], given), other.startswith("!")
        for name in names.split():
            if there == unless and _is_given(options[name], given):
                beside = f"{'with' if unless else 'without'} {_flag(options[other.lstrip('!')])}"
                raise UserError(f"{_flag(options[name])} has no use {beside}")


def _is_given(parameter: inspect.Parameter, given: Mapping[str, Any]) -> bool:
    """True for an option with another value than its default, `--no-...` among them."""
    known = given.get(parameter.name) if parameter.default is not parameter.empty else None
    return known not in (None, []) and known != parameter.default


def _flag(parameter: inspect.Parameter) -> str:
    told_of = get_args(parameter.annotation)[1]
    flags = (f"--{parameter.name.replace('_', '-')}", told_of.default, *(told_of.param_decls or ()))
    return [flag for flag in map(str, flags) if flag.startswith("--")][-1]


def signature_of(
    function: Callable[..., Any], asked: Mapping[str, tuple[Any, Any]] = EMPTY
) -> inspect.Signature:
    """The function's own parameters without `out`, those that are asked for in the place of its
    `**asked`, then the limits and the common options."""
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    usage = told(function)[1]
    keyword = inspect.Parameter.KEYWORD_ONLY

    def shared(name: str, kind: Any, default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, keyword, default=default, annotation=kind)

    given = [p for p in own if p.kind is not p.VAR_KEYWORD]
    parameters = [
        *(p for p in given if p.default is p.empty),
        *(shared(name, *each) for name, each in asked.items()),
        *(p for p in given if p.default is not p.empty),
        *(shared(name, kind, None) for name, kind in LIMITS.items()),
        *(shared(name, bool, False) for name in COMMON),
    ]
    return inspect.Signature(
        [option_of(p.replace(kind=keyword), usage.get(p.name)) for p in parameters]
    )


def told(function: Callable[..., Any]) -> tuple[str, dict[str, tuple[str, str]]]:
    """The text of a docstring, whose first paragraph `jaxq --help` shows, and its `Args`: what is
    in parentheses, and the help."""
    text, _, args = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    return text, _entries(args)


def _entries(args: str) -> dict[str, tuple[str, str]]:
    found = re.findall(r"^    (\w+)(?: \((.*?)\))?:((?:.|\n {8})*)", args, re.MULTILINE)
    return {name: (usage, " ".join(help.split())) for name, usage, help in found}


EVERYWHERE = _entries(SHARED)


def option_of(parameter: inspect.Parameter, own: tuple[str, str] | None) -> inspect.Parameter:
    """A parameter as the option or argument that its docstring or `SHARED` tells, if it is none."""
    name = parameter.name
    if own is None and name not in EVERYWHERE:
        return parameter
    usage, help = own or EVERYWHERE[name]
    complete = None if own else COMPLETE.get(name)
    if usage.startswith("<"):
        found = typer.Argument(
            metavar=usage[1:-1], show_default=False, help=help, autocompletion=complete
        )
    else:
        flags = re.findall(r"(?<!\S)-\S+", usage)
        if parameter.default is False or (flags and not flags[-1].startswith("--")):
            usage += f" --{name.replace('_', '-')}"
        found = option(usage, help, complete, PANEL_OF.get(name))
    return parameter.replace(annotation=Annotated[parameter.annotation, found])
