"""Registries: kinds of things that are known by being defined."""

from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TypeVar

from jq.base.errors import InternalError

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
