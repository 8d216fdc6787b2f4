"""Provenance of a page: when, by which command, from what, and on which machine.

This stands in the page alone: an artifact says nothing of who made it, when or where."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jq.artifact.manifest import Manifest
from jq.base.system.processor import this_processor
from jq.passes.pipeline import Pipeline, changed_settings, load_pipeline
from jq.reporting.doctor import describe, versions
from jq.target.settings import Settings

DEFAULT_TARGET = "llvm-cpu"  # that of this machine


def provenance(manifest: Manifest, command: str | None, source: str) -> dict[str, str]:
    """The section's lines, by the words in front of each."""
    cpu = describe(this_processor())
    changed = changed_settings(manifest.settings, Settings())
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    built = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    return {
        "page made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command or "jq.report, from Python",
        "model": source,
        "pipeline": manifest.pipeline,
        "target": manifest.target,
        "settings": ", ".join(f"{k}={v}" for k, v in changed.items()) or "none",
        "rules": "; ".join(_rule(rule) for rule in manifest.rules) or "none",
        "processor": f"{cpu['model']} ({cpu['architecture']}), {cpu['threads']} threads",
        "instructions": ", ".join(cpu["features"]) or "none that products use",
        "compiled by": f"jaxq {manifest.tool_version} ({built})",
        "measured by": packages,
    }


def options_of(manifest: Manifest, pipeline: Pipeline) -> list[str]:
    """Options of `jaxq compile` besides the model: pipeline, target, settings, own rules."""
    options = ["-p", manifest.pipeline]
    if manifest.target != DEFAULT_TARGET:
        options += ["-t", manifest.target]
    given = changed_settings(manifest.settings, load_pipeline(pipeline.file).settings)
    for key in sorted(pipeline.explicit & given.keys()):
        options += ["--set", f"{key}={json.dumps(given[key])}"]
    known = [rule.model_dump() for rule in pipeline.file.rules]
    for rule in manifest.rules:
        if dict(rule) not in known:
            options += ["--rule", _rule(rule)]
    return options


def _rule(rule: Mapping[str, Any]) -> str:
    override = ", ".join(f"{key}={value}" for key, value in rule.get("override", {}).items())
    return f"{rule.get('pattern', '')}: {override}"
