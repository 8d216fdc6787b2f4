"""Choices as rows: settings, devices, recovery, metrics, ops, passes.

`jaxq list` prints these rows, and the page `docs/reference/settings.md` holds them: all are made
from what validates a name."""

import inspect
import sys
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from jq.driver.comparison.metrics import DESCRIPTIONS
from jq.ir.ops.base import Contraction, OpRule
from jq.ir.ops.lookup import contraction_names, known_ops
from jq.passes.base import Recovery, known_passes
from jq.passes.order import LEVELS, steps
from jq.planning.calibration.observer import observer_names
from jq.target.device_table import Device, OpLimits
from jq.target.settings import FORMAT_NAME, Settings

Row = dict[str, Any]


def settings() -> list[Row]:
    """Every setting by its dotted key: type, default, allowed values, and a sentence."""
    return sorted(_settings(Settings, ""), key=lambda row: str(row["name"]))


def _settings(kind: type[BaseModel], prefix: str) -> Iterator[Row]:
    defaults = kind()
    for name, field in kind.model_fields.items():
        default = getattr(defaults, name)
        if isinstance(default, BaseModel):
            yield from _settings(type(default), f"{prefix}{name}.")
            continue
        yield {
            "name": f"{prefix}{name}",
            "type": _type(default, field.annotation),
            "default": list(default) if isinstance(default, tuple) else default,
            "allowed": _allowed(f"{prefix}{name}", field.annotation, field.metadata),
            "description": " ".join((field.description or "").split()),
        }


def _type(default: Any, annotation: Any) -> str:
    names = {bool: "boolean", int: "integer", str: "string", tuple: "list", dict: "table"}
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    if bool in parts:
        return "boolean or list"
    if default is None and parts:  # the type of what may be given
        first = get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]
        return names.get(get_origin(first) or first, "string")
    return names.get(type(default), "string")


def _allowed(name: str, annotation: Any, metadata: Any) -> str:
    """The values that a setting takes, in words."""
    if name == "calibration.method":
        return ", ".join(observer_names())
    if name == "op_types":
        return ", ".join(contraction_names())
    if name == "recovery":
        return "true, false, or " + ", ".join(row["name"] for row in recovery())
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    if any(FORMAT_NAME in (*metadata, *get_args(part)) for part in parts):
        return "`float`, or a name of `jaxq list formats`"
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if annotation is bool:
        return "true, false"
    least = [m.ge for m in metadata if hasattr(m, "ge")]
    return f"at least {least[0]}" if least else "any"


def device() -> list[Row]:
    """Keys of the table `[device]` of a target file, and of `[device.limits.KIND]` in it."""
    own = [row for row in _settings(Device, "") if row["name"] != "limits"]
    return [*own, *_settings(OpLimits, "limits.KIND.")]


def recovery() -> list[Row]:
    """The passes that keep accuracy, and whether they run unless they are asked for."""
    return [
        {
            "name": name,
            "default": "named only" if kind.optional else "on",
            "needs_data": kind.needs_data,
            "description": _sentence(sys.modules[kind.__module__]),
        }
        for name, kind in sorted(known_passes().items())
        if issubclass(kind, Recovery)
    ]


def metrics() -> list[Row]:
    """The metrics by name, and what they say of a model."""
    return [{"name": name, "description": text} for name, text in DESCRIPTIONS.items()]


def ops() -> list[Row]:
    """The ops that the compiler knows, and what it can do with quantized operands."""
    return [
        {"name": name, "kind": _kind(rule), "description": _of_rule(type(rule))}
        for name, rule in sorted(known_ops().items())
        if isinstance(rule, OpRule)
    ]


def _of_rule(kind: type[OpRule]) -> str:
    """The sentence of a rule, of the rule that it varies, or of the module that has it alone."""
    home = sys.modules[kind.__module__]
    own = [c for c in kind.__mro__ if c.__doc__ and c.__module__.startswith(home.__package__ or "")]
    return _sentence(own[0] if own else home)


def _kind(rule: OpRule) -> str:
    if isinstance(rule, Contraction):
        return "contraction"
    return "adds" if rule.sums else "moves elements"


def passes() -> list[Row]:
    """All passes in their order: the level that each leads to, when it runs, why it is there."""
    return [
        {"name": s.name, "level": level, "runs": s.when.text, "description": s.reason()}
        for level in LEVELS
        for s in steps()[level]
    ]


KINDS = {f.__name__: f for f in (settings, device, recovery, metrics, ops, passes)}


def _sentence(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].rstrip(".:")
