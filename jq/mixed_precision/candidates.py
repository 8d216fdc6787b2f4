"""Candidates for an op's storage and computation: a name, and the settings that a rule overrides.

float, bfloat16, float16, float32   the op stays float (computes in that type)
a pipeline's name                   the formats of that pipeline (`int8-dynamic`, ...)
FORMAT or FORMAT/BLOCK              these weights, activations as in the base pipeline
'NAME: key=value, ...'              any settings, as in a rule"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jq.base.errors import UserError, check_type, known
from jq.base.system.folders import data_names
from jq.formats import Format, get_format
from jq.passes.pipeline import flat_settings, load_pipeline
from jq.target.rules import apply_overrides, parse_rule
from jq.target.settings import FLOAT, FLOAT_TYPES, Settings

_TENSORS = ("weights.", "activations.", "activation_products")  # keys that make a format


@dataclass(frozen=True)
class Candidate:
    """`overrides`: pairs of a settings key and its value."""

    name: str
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def rule(self) -> dict[str, Any]:
        return dict(self.overrides)


def make_candidates(names: Sequence[str], base: Settings, pipeline: str) -> tuple[Candidate, ...]:
    """The candidates that were asked for, else those that suit the base pipeline: `base` are its
    settings, and its own formats are a candidate called `pipeline`."""
    found = [parse_candidate(name, base) for name in names] if names else usual(base, pipeline)
    unique: dict[str, Candidate] = {}
    for candidate in found:
        if candidate.name in unique and unique[candidate.name] != candidate:
            raise UserError(f"two candidates are called {candidate.name!r}")
        unique[candidate.name] = candidate
    return tuple(unique.values())


def usual(base: Settings, pipeline: str) -> list[Candidate]:
    """Float, the base pipeline's formats, int4 in blocks, and weights alone."""
    found = [parse_candidate(FLOAT, base), Candidate(pipeline)]
    if base.activations.format != FLOAT:
        found.append(parse_candidate("int4", base))
        if base.activation_products == FLOAT:
            products = (("activation_products", "int8"),)
            found.append(Candidate(f"{pipeline}+products", products))
    return [*found, *(parse_candidate(f"{f}-weight-only", base) for f in ("int8", "int4"))]


def parse_candidate(text: str, base: Settings) -> Candidate:
    """One candidate, as the user writes it; `UserError` where it is none of the forms above."""
    check_type("a candidate", text, str)
    if ":" in text:
        rule = parse_rule(text)
        return Candidate(rule.pattern, tuple(rule.override.items()))
    if text in (FLOAT, *FLOAT_TYPES):
        return Candidate(text, (("format", text),))
    if text in data_names("pipelines"):
        pipeline = load_pipeline(text)
        if pipeline.open:
            raise UserError(f"pipeline {text} is no candidate: it chooses among candidates itself")
        return Candidate(text, _differences(pipeline.settings, base))
    name, slash, size = text.partition("/")
    if name.lower() not in Format.registry or (slash and not size.isdecimal()):
        hint = known(text, [FLOAT, *data_names("pipelines"), *sorted(Format.registry)])
        raise UserError(f"unknown candidate {text!r}", hint=hint)
    overrides: dict[str, Any] = {"weights.format": get_format(name).name}
    if slash or getattr(get_format(name), "bits", 8) < 8:
        overrides["weights.granularity"] = "per-block"
        overrides["weights.block_size"] = int(size or 32)
    elif base.weights.granularity == "per-block":
        overrides["weights.granularity"] = "per-channel"
    changed = apply_overrides(base, overrides, where=f"candidate {text!r}")
    return Candidate(text, _differences(changed, base))


def _differences(wanted: Settings, base: Settings) -> tuple[tuple[str, Any], ...]:
    """The settings of formats that turn `base` into `wanted`."""
    old, new = (flat_settings(s.model_dump()) for s in (base, wanted))
    keys = (key for key in new if key.startswith(_TENSORS))
    return tuple((key, new[key]) for key in keys if new[key] != old.get(key))
