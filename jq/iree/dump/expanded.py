"""Constants that a program writes to memory in float at every call, from IREE's dispatches.

A dispatch that reads constants alone and gives floats is a decode that was not fused with what
uses it. The phase `flow` shows dispatches and what they read. What is found is kept as comments
at the end of the dump, one line of JSON each, so that an artifact carries it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from iree.compiler import ir

from jq.iree.dump.stored import constant_of, location_names

PHASE = "flow"
_COMMENT = "// expanded: "
_SMALLEST = 1024  # elements
_LOADS = ("util.global.load", "flow.tensor.constant", "arith.constant")


@dataclass(frozen=True)
class Expanded:
    """A float tensor in memory and the names of the constants that it is computed from."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str


def find_expanded(text: str) -> list[Expanded]:
    """The expanded weights in the dump of `PHASE`; none when it cannot be read."""
    with ir.Context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError:
            return []
        globals_ = dict(_globals(module))
        functions = [op for op in module.body.operations if op.operation.name == "util.func"]
        return [e for f in functions for e in _in_function(f.operation, globals_)]


def _globals(module: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for op in module.body.operations:
        if op.operation.name != "util.global":
            continue
        names = location_names(op.operation.location)
        constant = constant_of(op.operation, names)
        symbol = ir.StringAttr(op.attributes["sym_name"]).value
        yield symbol, (constant.names or (constant.name,)) if constant else names


def _in_function(function: Any, globals_: dict[str, tuple[str, ...]]) -> Iterator[Expanded]:
    known: dict[Any, tuple[str, ...]] = {}  # values that depend on constants alone
    for block in function.regions[0]:
        for op in (o.operation for o in block):
            if op.name in _LOADS:
                names: tuple[str, ...] = location_names(op.location)
                if op.name == "util.global.load":
                    names = globals_.get(ir.FlatSymbolRefAttr(op.attributes["global"]).value, ())
            elif op.name.startswith("flow."):
                if any(v not in known for v in op.operands):
                    continue
                names = tuple(dict.fromkeys(n for v in op.operands for n in known[v]))
            else:
                continue
            for result in op.results:
                known[result] = names
                if op.name == "flow.dispatch" and (found := _float(result.type)):
                    yield Expanded(names, *found)


def _float(kind: Any) -> tuple[tuple[int, ...], str] | None:
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    shape = tuple(kind.shape)
    if prod(shape) < _SMALLEST or not isinstance(kind.element_type, ir.FloatType):
        return None
    return shape, str(kind.element_type)


def as_comments(found: list[Expanded]) -> str:
    return "".join(f"{_COMMENT}{json.dumps(asdict(e))}\n" for e in found)


def from_comments(text: str) -> tuple[Expanded, ...]:
    """Reads what `as_comments` wrote at the end of a dump."""
    out = []
    for line in reversed(text.splitlines()):
        if not line.startswith(_COMMENT):
            break
        data = json.loads(line.removeprefix(_COMMENT))
        out.append(Expanded(tuple(data["names"]), tuple(data["shape"]), data["dtype"]))
    return tuple(reversed(out))
