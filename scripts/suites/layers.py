"""Layers of Flax, Equinox and Keras as people write them, in evaluation mode with odd sizes.

Each table has every public layer of its module: how it is made and called, or why it is none.
`missing` says which names of a module its table lacks, so that a new layer is noticed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from suites import program
from suites.outcome import Outcome
from suites.program import Case

MODULES = ("nnx", "linen", "equinox", "keras", "functions")
NO_LAYER = "no layer"


@dataclass(frozen=True)
class Table:
    """The layers of a module.

    Attributes:
        cases: name -> what makes the case; a name may have several (`Conv`, `Conv dilated`).
        left_out: name -> why it is no case.
        public: the names that the module has.
    """

    cases: Mapping[str, Callable[[], Case]]
    left_out: Mapping[str, str]
    public: Sequence[str]

    def missing(self) -> list[str]:
        """Public names that are neither a case nor left out."""
        known = {name.split()[0] for name in self.cases} | set(self.left_out)
        return [name for name in self.public if name not in known]


@cache
def table(module: str) -> Table:
    """The table of one of `MODULES`."""
    return import_module(f"suites.layers_{module}").TABLE


def names(modules: Sequence[str]) -> list[tuple[str, str]]:
    """Every case: the name of its table, and its own."""
    return [(module, name) for module in modules for name in table(module).cases]


def missing(module: str) -> list[str]:
    """Layers that the table of a module lacks."""
    return table(module).missing()


def classes(module: Any, base: type) -> list[str]:
    """Public names of a module that are classes of a kind."""
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return [n for n, m in members.items() if inspect.isclass(m) and issubclass(m, base)]


def judge(batch: Sequence[tuple[str, str]], pipeline: str) -> list[Outcome | None]:
    """Outcomes of these layers, each the name of a table and one of a case."""
    return program.judge([table(module).cases[name]() for module, name in batch], pipeline)
