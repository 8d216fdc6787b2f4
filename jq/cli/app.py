"""The command line as a whole: the commands in the order of `--help`, and how a run ends."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

from jq.cli.command import COMMANDS
from jq.cli.listing import GROUPS
from jq.cli.output import report

HELP = ["-h", "--help"]
app = typer.Typer(
    name="jaxq",
    help="Takes a JAX model and gives back a quantized program that IREE runs.",
    context_settings={"help_option_names": HELP},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
PANELS = {
    "Compile and run": "compile run explain inspect calibrate",
    "Accuracy and speed": "compare search report bench",
    "Devices": "check estimate export vectors embed",
    "Language models": "generate perplexity quantize",
    "This installation": "quickstart doctor",
}
for module in iter_modules([str(Path(__file__).parent)]):  # a command is found because it is there
    if module.name not in ("app", "reference"):
        import_module(f"jq.cli.{module.name}")
for panel, names in PANELS.items():
    for name in names.split():
        run, epilog = COMMANDS[name]
        app.command(name, epilog=epilog, rich_help_panel=panel)(run)
for group in GROUPS.values():
    app.add_typer(group, rich_help_panel="This installation")
for path, (run, epilog) in COMMANDS.items():
    of, _, name = path.rpartition(" ")
    if of:
        GROUPS[of].command(name, epilog=epilog)(run)


def version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"jaxq {version('jaxq')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def commands() -> Any:
    """All commands. A flag takes no value: no `<bool>` stands behind it in the help."""
    group = typer.main.get_command(app)
    for each in walk(group):
        for parameter in each.get_params(typer.Context(each, help_option_names=HELP)):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
    return group


def walk(group: Any) -> Iterator[Any]:
    """A command and all below it."""
    yield group
    for each in getattr(group, "commands", {}).values():
        yield from walk(each)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the process's exit code.

    The commands themselves report what goes wrong in them (`jq.cli.command`); what is left here are
    mistakes in the arguments, and help that nobody can read."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # XLA's notes on devices, at its start
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = commands()(
            given, prog_name="jaxq", standalone_mode=False, obj=shlex.join(["jaxq", *given])
        )
    except (typer.TyperException, typer.Abort, OSError) as error:
        return report(error)
    return code if isinstance(code, int) else 0
