"""Settings and rules in the forms in which a call may give them."""

from collections.abc import Mapping, Sequence
from typing import Any

from jq.passes.pipeline.file import flat_settings
from jq.target.rules import Rule, parse_assignments, parse_rule

SettingsLike = Mapping[str, Any] | Sequence[str] | str | None
Rules = Mapping[str, str] | Sequence[str | Rule] | str | None


def as_rules(rules: Rules) -> list[Rule]:
    """Rules in their order: of texts `"head/*: float"`, or of `{"head/*": "float"}`."""
    if isinstance(rules, Mapping):
        rules = [f"{pattern}: {settings}" for pattern, settings in rules.items()]
    given = [rules] if isinstance(rules, str) else rules or ()
    return [rule if isinstance(rule, Rule) else parse_rule(rule) for rule in given]


def as_overrides(settings: SettingsLike) -> dict[str, Any]:
    """Settings by dotted key: `{"weights.format": "int4"}`."""
    if isinstance(settings, Mapping):
        return flat_settings(dict(settings))
    return parse_assignments([settings] if isinstance(settings, str) else list(settings or ()))
