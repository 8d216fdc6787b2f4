"""Reports of defects of IREE that nobody has posted: each with its smallest module.

    scripts/check.py reports                # prints the page `docs/internals/iree-reports.md`

The module is the one that the defect's trap compiles. The right result is that of StableHLO's
interpreter, and the wrong one, or the error, that of the IREE that is installed.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from jq.base.errors import JqError  # noqa: E402
from jq.passes.iree_mends.mend import Defect, defects  # noqa: E402

HEAD = """# Reports of IREE's defects, to be posted

This page is for whoever reports defects to IREE. For each defect of [the list](iree.md) that no
public issue describes it has the text of one: what happens, the smallest module, the right result
and the wrong one; `...` stands for more than 32 numbers, which the trap has. `scripts/check.py
reports` writes it, from the traps. Each was seen in IREE 3.13:

```text
iree-compile --iree-hal-target-device=local --iree-hal-local-target-device-backends=llvm-cpu
  --iree-llvmcpu-target-cpu=host --iree-input-type=stablehlo module.mlir -o module.vmfb
```
"""
LONG = 3000  # characters of a module that is no small one any more
FEW = 32  # numbers of a tensor that are shown


class Given(Exception):
    """A module that a trap wants to compile and to run."""

    def __init__(self, text: str | bytes, *inputs: Any, **weights: Any) -> None:
        self.text = text.decode() if isinstance(text, bytes) else text
        given = (*inputs, *weights.values())
        self.inputs = [np.asarray(x) for x in given if isinstance(x, np.ndarray | np.generic)]


def unreported() -> Iterator[Defect]:
    for found in defects():
        if found.seen.startswith("IREE") and found.traps and not found.report:
            yield found


def given(trap: str) -> Given | None:
    """The module and inputs of a trap, `file.py::name`; None for one that makes them otherwise."""
    file, _, name = trap.partition("::")
    module = importlib.import_module("tests." + file.removesuffix(".py").replace("/", "."))
    function, arguments = getattr(module, name), dict[str, Any]()
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args[0], next(iter(mark.args[1]))
            names = names.split(", ") if isinstance(names, str) else list(names)
            arguments |= zip(names, values if len(names) > 1 else [values], strict=True)
    for fixture in set(inspect.signature(function).parameters) - set(arguments):
        arguments[fixture] = mock.MagicMock()

    def take(text: Any, *inputs: Any, **more: Any) -> None:
        raise Given(text, *inputs, **{k: v for k, v in more.items() if k != "flags"})

    patched: dict[str, Any] = {n: take for n in ("raw", "compile_module") if hasattr(module, n)}
    if not patched:
        return None
    with mock.patch.multiple(module, **patched):
        try:
            function(**arguments)
        except Given as found:
            return found
        except BaseException:
            return None
    return None


def module_of(text: str) -> str:
    """As IREE takes it by itself: a function called `@main`, and no names of weights."""
    text = text if "func.func" in text else f"func.func @main{text}"
    text = re.sub(r' \{jq\.weight = "\w+"\}', "", text)
    lines = text.strip().splitlines()
    body = [len(s) - len(s.lstrip()) for s in lines[1:-1] if s.strip()]
    extra = max(min(body, default=2) - 2, 0)
    return "\n".join([lines[0], *(s[min(extra, len(s) - len(s.lstrip())) :] for s in lines[1:])])


def shown(values: list[np.ndarray]) -> str:
    return "; ".join(
        f"{v.shape} {v.dtype} {v.tolist() if v.size <= FEW else '...'}" for v in values
    )


def outcomes(found: Given, run: bool) -> Iterator[str]:
    """The lines of the inputs, the right result and, where it is to be run, the wrong one."""
    from jq.ir.oracle.interpreter import interpret
    from tests.support.texts import load
    from tests.traps.helpers import raw

    if found.inputs:
        yield f"- inputs: {shown(found.inputs)}"
    text = re.sub(r' \{jq\.weight = "\w+"\}', "", found.text)
    known = found.inputs and all(x.size and x.dtype.kind != "c" for x in found.inputs)
    with suppress(Exception):  # the interpreter has not all types
        if known:
            yield f"- right: {shown(interpret(load(text), *found.inputs))}"
    if not run:
        return
    try:
        yield f"- IREE {version('iree-base-compiler')}: {shown(raw(text, *found.inputs))}"
    except JqError as error:
        reason = re.sub(r" \[/.*", "", error.message.partition("\n")[0])
        if found.inputs or reason.startswith("iree-compile"):  # else nothing was called
            yield f"- IREE {version('iree-base-compiler')}: {reason}"
    except Exception as error:
        yield f"- IREE {version('iree-base-compiler')}: {type(error).__name__}"


def report(found: Defect, run: bool) -> str:
    """One section of the page."""
    parts = [f"## {found.what}"]
    trap = next(((t, g) for t in found.traps if (g := given(t)) and len(g.text) < LONG), None)
    if trap is None:
        parts.append(f"`tests/{found.traps[0]}` makes the module.")
    else:
        parts.append(f"```mlir\n{module_of(trap[1].text)}\n```")
        parts += filter(None, ["\n".join(outcomes(trap[1], run))])
    return "\n\n".join(parts) + "\n"


def main(
    run: Annotated[bool, typer.Option(help="Run IREE: else its results are left out.")] = True,
) -> None:
    print(HEAD)
    for found in unreported():
        print(report(found, run), flush=True)


if __name__ == "__main__":
    typer.run(main)
