"""Registries: kinds of things that are known by being defined; names that are free; and packages
that may not be installed."""

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import chain, count
from pkgutil import walk_packages
from typing import Any, TypeVar

from jq.base.errors import InternalError, UserError

T = TypeVar("T")


@cache
def import_all(package: str) -> None:
    """Imports every module under a package: what is defined there registers itself."""
    for found in walk_packages(import_module(package).__path__, f"{package}."):
        import_module(found.name)


def register(registry: dict[str, T], kind: str, name: str, thing: T) -> None:
    """Puts a thing of a kind where it is found by its name; a second of that name is an error."""
    if name in registry:
        raise InternalError(f"{kind} {name!r} is defined twice")
    registry[name] = thing


def in_words(kind: type, between: str) -> str:
    """The name of a class in small letters: `FoldWeights` is `fold-weights`."""
    return re.sub(r"(?<!^)(?=[A-Z])", between, kind.__name__).lower()


def unused(name: str, taken: Callable[[str], bool]) -> str:
    """The name, with `#2`, `#3`, ... behind it where it is taken."""
    others = (f"{name}#{n}" for n in count(2))
    return next(each for each in chain([name], others) if not taken(each))


def need(module: str, extra: str = "examples", who: str = "this needs") -> Any:
    """The imported `module`, or a `UserError` that names the extra it comes with; of a package that
    is there and does not load, it says why."""
    try:
        return import_module(module)
    except ImportError as error:
        name, missing = error.name or module, isinstance(error, ModuleNotFoundError)
        what = f"{who} the Python package {(name if missing else module).partition('.')[0]}"
        what += "" if missing else f", which does not load: {error}".partition("\n")[0]
        raise UserError(what, hint=f'pip install "jaxq[{extra}]"') from error
