"""Loads a pipeline by name or path, and checks it before anything slow begins."""

from __future__ import annotations

from typing import Any

from jq.passes.pipeline.checks import check_pipeline, check_settings
from jq.passes.pipeline.file import PipelineFile, flat_settings, read_pipeline
from jq.passes.pipeline.loaded import Pipeline
from jq.target.settings import Rule, Settings, apply_overrides, check_rule


def load_pipeline(
    source: str | PipelineFile,
    overrides: dict[str, Any] | None = None,
    rules: tuple[Rule, ...] = (),
) -> Pipeline:
    """A pipeline by name or path, with settings overridden and the user's rules in front.

    Args:
        source: the name of a pipeline of ours, the path of a TOML file, or what was read of one.
        overrides: settings by dotted key, `{"weights.format": "int4"}`.
        rules: the user's, which come before those of the file.

    Raises:
        UserError: there is no such pipeline, or a setting, rule or recovery pass is unknown or
            cannot be carried out with the others.
    """
    file = source if isinstance(source, PipelineFile) else read_pipeline(source)
    where = f"pipeline {file.name}"
    settings = apply_overrides(Settings(), flat_settings(file.settings), where=where)
    settings = apply_overrides(settings, overrides or {}, where="settings")
    check_settings(settings)
    for rule in (*rules, *file.rules):
        check_rule(rule)
    explicit = frozenset(overrides or {})
    loaded = Pipeline(file.name, file.description, settings, (*rules, *file.rules), explicit, file)
    check_pipeline(loaded)
    return loaded
