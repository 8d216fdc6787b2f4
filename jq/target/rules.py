"""Rules and overrides: settings as they are given for single ops, or by dotted keys."""

import fnmatch
import tomllib
from typing import Any

from pydantic import ValidationError

from jq.base.errors import UserError, known
from jq.base.guard.patterns import check_pattern, matches_any
from jq.target.settings import FLOAT, FLOAT_TYPES, LISTS, WHOLE, Model, Settings, Strict


class Rule(Strict):
    """Overrides for the ops whose weight path, scope or op type matches `pattern`.

    `pattern` is a glob (`encoder/*/query*`) or, after `re:`, a regular expression that must match
    the whole name. `override` maps settings keys to values; the key `format` sets the format of
    weights and activations both; a float type there keeps the op float, in that type. `reason` is
    shown by `explain` with the ops that the rule decides for."""

    pattern: str
    override: dict[str, Any]
    reason: str = ""

    def matches(self, names: tuple[str, ...]) -> bool:
        if self.pattern.startswith("re:"):
            return matches_any(self.pattern[3:], names)
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in names)


def parse_rule(text: str) -> Rule:
    """`'PATTERN: key=value, ...'`; the value `float` alone stands for `format=float`."""
    prefix, sep, tail = text.rpartition(": ") if ": " in text else text.rpartition(":")
    if not sep or not prefix.strip() or not tail.strip():
        raise UserError(f"cannot read rule {text!r}", hint="write 'PATTERN: key=value, ...'")
    override: dict[str, Any] = {}
    for part in tail.split(","):
        key, eq, value = part.strip().partition("=")
        key, value = (key.strip(), value) if eq else ("format", key)
        if key in override or not value.strip():
            what = "is given twice" if key in override else "has no value"
            raise UserError(f"{key} {what} in rule {text!r:.200}")
        override[key] = parse_value(value)
    rule = Rule(pattern=prefix.strip(), override=override)
    check_rule(rule)
    return rule


def check_rule(rule: Rule) -> None:
    """Raises `UserError` when the pattern is no regular expression or a key is unknown."""
    if rule.pattern.startswith("re:"):
        try:
            check_pattern(rule.pattern[3:])
        except ValueError as error:
            where = f"bad regular expression in rule {rule.pattern!r:.200}"
            raise UserError(f"{where}: {error}") from error
    where = f"rule {rule.pattern!r:.200}"
    apply_overrides(Settings(), rule.override, where=where)
    for key in rule.override:
        if key.startswith(WHOLE):
            hint = "give it with --set, or in the settings of a pipeline"
            raise UserError(f"{where}: {key} is of the whole program, not of an op", hint=hint)


def parse_value(text: str) -> Any:
    """A TOML value; a bare word is a string, `a,b` a list of bare words."""
    text = text.strip()
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except RecursionError as error:
        raise UserError(f"the value {text[:20]!r}... is nested too deeply") from error
    except tomllib.TOMLDecodeError:
        return [w.strip() for w in text.split(",")] if "," in text else text
    except ValueError as error:  # Python reads no integer of more than 4300 digits
        raise UserError(f"the value {text[:20]!r}... is too long a number") from error


def parse_assignments(pairs: list[str]) -> dict[str, Any]:
    """`["weights.format=int4", ...]` to `{"weights.format": "int4"}`."""
    out: dict[str, Any] = {}
    for pair in pairs:
        key, eq, value = pair.partition("=")
        if not eq or not key.strip():
            raise UserError(f"cannot read setting {pair!r}", hint="write key=value")
        out[key.strip()] = parse_value(value)
    return out


def apply_overrides(settings: Settings, overrides: dict[str, Any], *, where: str) -> Settings:
    """`settings` with dotted keys replaced; an unknown key lists the known ones."""
    data = settings.model_dump()
    for key, value in overrides.items():
        if key in LISTS and isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        if key == "format":
            if value in FLOAT_TYPES:
                data["float_type"], value = value, FLOAT
            data["weights"]["format"] = data["activations"]["format"] = value
            continue
        parts = key.split(".")
        node: Any = data
        for part in parts[:-1]:
            node = node.get(part) if isinstance(node.get(part), dict) else {}
        group = isinstance(node.get(parts[-1]), dict) and parts[-1] != "options"
        if group or (parts[-1] not in node and parts[-2:-1] != ["options"]):
            there = sorted(_keys(Settings().model_dump()))
            raise UserError(f"unknown setting {key!r} in {where}", hint=known(key, there))
        node[parts[-1]] = value
    return validate(Settings, data, where=where)


def _keys(node: dict[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for key, value in node.items():
        nested = isinstance(value, dict) and value
        out += _keys(value, f"{prefix}{key}.") if nested else [f"{prefix}{key}"]
    return out


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.200}"
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "a number of thousands of digits"


def validate(kind: type[Model], data: dict[str, Any], *, where: str) -> Model:
    """Validates by pydantic, whose answer becomes one line of ours."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        # "[key]" is how pydantic says that the key itself is wrong.
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        if first["type"] == "extra_forbidden":
            hint = known(key, sorted(kind.model_fields))
            raise UserError(f"unknown key {key!r} in {where}", hint=hint) from error
        reason, given = first["msg"].removeprefix("Value error, "), _shown(first["input"])
        reason = reason.replace("Input should be", "it has to be")
        got = "" if given in reason else f", got {given}"
        raise UserError(f"{where}: {key}: {reason}{got}") from error
