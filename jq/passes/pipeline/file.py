"""A pipeline file: settings and rules, with what it takes from its base."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.passes.base import Pass
from jq.passes.order import Level, passes_for
from jq.target.rules import Rule, parse_assignments, parse_rule, validate
from jq.target.settings import Settings, Strict
from jq.target.target import load_toml


class PipelineFile(Strict):
    """Contents of a pipeline file. Settings are those of `jq.target.settings.Settings`.

    `base` is a pipeline that this one starts from: the file's own rules come before the rules of
    its base, and its settings replace those of its base. A path is relative to the file.

    `candidates`: what an op may be, where the file leaves that to `compile`
    (`jq.mixed_precision.auto`); see `jq.mixed_precision.candidates` for how they are written."""

    name: str = ""
    base: str = ""
    description: str = ""
    settings: dict[str, Any] = {}
    rules: tuple[Rule, ...] = ()
    candidates: tuple[str, ...] = ()


def read_pipeline(name: str, readers: tuple[str, ...] = ()) -> PipelineFile:
    """A pipeline file by name or path, with what it takes from its base."""
    stem, data = load_toml("pipelines", name)
    where = f"pipeline {stem}"
    if "passes" in data:
        raise UserError(
            f"{where} has `passes`: which passes run, and their order, follows from the settings",
            hint="leave them out and write settings: `recovery = [...]` for what keeps accuracy,"
            " `placement`, `integer_only`; `jaxq list passes` shows the order and the conditions",
        )
    if outside := sorted(data.keys() & Settings.model_fields.keys()):
        hint = 'write it below a line [settings]: `weights.format = "int4"`'
        raise UserError(f"{where} has the setting {outside[0]!r} outside of [settings]", hint=hint)
    file = validate(PipelineFile, {"name": stem, **data}, where=where)
    if not file.base:
        return file.model_copy(update={"settings": flat_settings(file.settings)})
    path = Path(file.base)
    beside = path.suffix == ".toml" and not path.is_absolute()
    found = str(Path(name).parent / path) if beside else file.base
    if found in (*readers, name):
        raise UserError(f"{where} is a base of itself")
    base = read_pipeline(found, (*readers, name))
    return PipelineFile(
        name=file.name,
        description=file.description or base.description,
        settings=base.settings | flat_settings(file.settings),
        rules=(*file.rules, *base.rules),
        candidates=file.candidates or base.candidates,
    )


def flat_settings(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys, so that every setting has one spelling."""
    out: dict[str, Any] = {}
    for key, value in node.items():
        own = f"{prefix}{key}"
        out |= flat_settings(value, f"{own}.") if isinstance(value, dict) else {own: value}
    return out


def changed_settings(used: Mapping[str, Any], usual: Settings) -> dict[str, Any]:
    """The settings of a manifest that are not those of `usual`, by dotted keys."""
    known = flat_settings(usual.model_dump(mode="json"))
    return {k: v for k, v in flat_settings(dict(used)).items() if known.get(k) != v}


@dataclass(frozen=True)
class Pipeline:
    """A pipeline ready to run.

    `explicit` are the settings that the user gave by name; `file` is what it was made from."""

    name: str
    description: str
    settings: Settings
    rules: tuple[Rule, ...]
    explicit: frozenset[str] = frozenset()
    file: PipelineFile = field(default_factory=PipelineFile)

    @property
    def open(self) -> bool:
        """True if it leaves the formats of ops to be chosen."""
        return bool(self.file.candidates)

    @cached_property
    def passes(self) -> dict[Level, tuple[Pass, ...]]:
        """The passes that run under the pipeline's settings."""
        return passes_for(self.settings)


SettingsLike = Mapping[str, Any] | Sequence[str] | str | None
Rules = Mapping[str, str] | Sequence[str | Rule] | str | None


def as_rules(rules: Rules) -> list[Rule]:
    """Rules in their order: of texts `"head/*: float"`, or of `{"head/*": "float"}`."""
    if isinstance(rules, Mapping):
        rules = [f"{pattern}: {settings}" for pattern, settings in rules.items()]
    given = _listed(rules, "a rule", "write 'PATTERN: key=value, ...'", str, Rule)
    return [rule if isinstance(rule, Rule) else parse_rule(rule) for rule in given]


def as_overrides(settings: SettingsLike) -> dict[str, Any]:
    """Settings by dotted key: `{"weights.format": "int4"}`."""
    if isinstance(settings, Mapping):
        return flat_settings(dict(settings))
    return parse_assignments(_listed(settings, "a setting", "write {'KEY': VALUE}", str))


def _listed(given: Any, what: str, hint: str, *kinds: type) -> list[Any]:
    """None, one or several as a list; `UserError` where one is of another type."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found = list(given) if several else [] if given is None else [given]
    for each in found:
        if not isinstance(each, kinds):
            raise UserError(f"{what} is of type {type(each).__name__}", hint=hint)
    return found
