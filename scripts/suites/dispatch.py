"""Scripts of one kind behind one command: `scripts/suite.py NAME` runs `main` of a module.

Imports nothing but the standard library: interpreters without our packages run peers by it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import sys
from pathlib import Path
from typing import NoReturn

SCRIPTS = Path(__file__).resolve().parents[1]


def names(package: str) -> dict[str, str]:
    """The scripts of a package, and the first line of the docstring of each; none is imported."""
    folder = SCRIPTS.joinpath(*package.split("."))
    found = {}
    for module in pkgutil.iter_modules([str(folder)]):
        text = (folder / f"{module.name}.py").read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(text)) or ""
        found[module.name] = " ".join(about.partition("\n\n")[0].split())
    return found


def run(script: str, package: str) -> NoReturn:
    """Runs the module that the command line names with the arguments after its name.

    `main` of a module either reads `sys.argv` by itself, or has parameters, of which typer makes
    options. Its docstring is the help.
    """
    known = names(package)
    name, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if name in ("--help", "-h"):
        width = max(map(len, known))
        print(f"Usage: scripts/{script} NAME [OPTIONS]; scripts/{script} NAME --help\n")
        print("\n".join(f"  {n:{width}}  {about}" for n, about in known.items()))
        sys.exit(0)
    if name not in known:
        sys.exit(f"scripts/{script}: there is no {name!r}; known: {', '.join(known)}")
    sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parent)]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    module = importlib.import_module(f"{package}.{name}")
    sys.argv = [f"scripts/{script} {name}", *arguments]
    if inspect.signature(module.main).parameters:
        import typer

        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(help=module.__doc__)(module.main)
        app(prog_name=sys.argv[0])
    sys.exit(module.main())
