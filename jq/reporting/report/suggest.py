"""Rules to try for the layers that make most noise by themselves."""

import glob
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import FLOOR_DB, ActivationRange, Comparison, LayerError
from jq.driver.compiled import CompiledModel
from jq.formats import get_format
from jq.planning.decisions import OpPlan, QuantPlan
from jq.reporting.measuring.verdict import furthest
from jq.target.settings import FLOAT

MOST = 3  # rules
CLIPPED, FILLED = 0.01, 1 / 16  # shares of values, and of a range: 1/16 leaves 4 bits of 8
ENOUGH = 40.0  # dB: a layer that makes no more noise than this needs no rule


@dataclass(frozen=True)
class Suggestion:
    """`rule` as `--rule` takes it, the layer that it is about, why, and what to expect of it."""

    rule: str
    layer: str
    why: str
    hope: str


def suggestions(
    layers: Sequence[LayerError], plan: QuantPlan, integer_only: bool, products: Collection[str]
) -> list[Suggestion]:
    """One rule a layer, the worst first: more bits where it has few, activations of 16 bits where
    the target multiplies those (`products`), else float, which no integer-only program has."""
    plans, found = {op.name: op for op in plan.ops}, []
    for layer in furthest(layers, MOST):
        mild = layer.isolated_sqnr_db >= FLOOR_DB  # what is ruined may be so by its weights
        change = _change(plans[layer.name], products, mild)
        what = f"{layer.isolated_sqnr_db:.1f} dB by itself"
        now, then = layer.sqnr_db, without_own_noise(layer)
        hope = "not known" if then is None else f"from {now:.1f} to at most {then:.1f} dB"
        if layer.isolated_sqnr_db < ENOUGH and not (integer_only and change == FLOAT):
            found.append(Suggestion(f"{pattern(layer.name)}: {change}", layer.name, what, hope))
    return found


def warning(comparison: Comparison, compiled: CompiledModel) -> str:
    """Warns of the op that makes outputs that are far from the float model's, and says what would
    help; empty where they are not."""
    db, plan, manifest = worst(comparison.outputs)["sqnr_db"], compiled.plan, compiled.manifest
    if not db < FLOOR_DB:
        return ""
    text = f"at {db:.1f} dB {_named(comparison)} far from the float model's"
    if other := next(filter(None, map(_unlike, comparison.activations)), ""):
        return f"{text}; {other}: calibrate with data like these"
    bad = next(iter(furthest(comparison.layers)), None)
    if plan is None or bad is None or bad.isolated_sqnr_db >= ENOUGH:
        return f"{text}; `jaxq compare --layers` shows which op makes it, --pipeline auto may help"
    settings, device = manifest.settings, manifest.own_target().device
    integer_only = bool(settings["integer_only"]) or device.integer_only
    rules = suggestions([bad], plan, integer_only, device.products)
    ways = [f"--rule '{s.rule}'" for s in rules]
    if not integer_only:
        ways.append("--pipeline auto, which chooses formats by the error")
    why = f"{bad.isolated_sqnr_db:.1f} dB by itself, on {comparison.samples} samples"
    help = f": give {', or '.join(ways)}" if ways else ""
    return f"{text}; {bad.name} makes most of the noise ({why}){help}"


def _unlike(read: ActivationRange) -> str:
    """The words for values that are beyond a calibrated range, or fill little of it; or empty."""
    if read.clip_low is None or read.clip_high is None:
        return ""
    calibrated = f"the range of the calibration data, {read.clip_low:.3g} to {read.clip_high:.3g}"
    there = f"{read.low:.3g} to {read.high:.3g}"
    name = read.name.rpartition(":")[0]
    if read.saturation > CLIPPED:
        return f"{read.saturation:.0%} of what {name} reads ({there}) is beyond {calibrated}"
    if max(-read.low, read.high) < FILLED * max(-read.clip_low, read.clip_high):
        return f"what {name} reads ({there}) fills little of {calibrated}"
    return ""


def _named(comparison: Comparison) -> str:
    """The outputs that are meant, by name where there are others."""
    outputs = comparison.outputs
    far = [o.name for o in outputs if o.match is None and o.sqnr_db < FLOOR_DB]
    if len(far) == len(outputs):
        return "the outputs are"
    more = f" and {len(far) - MOST} more" if len(far) > MOST else ""
    return f"{len(far)} of {len(outputs)} outputs ({', '.join(far[:MOST])}{more}) are"


def without_own_noise(layer: LayerError) -> float | None:
    """SQNR in dB of a layer's result if only what it reads made noise: the powers of both are taken
    to add up. None where the layer's own is the larger one: then they do not."""
    own, all_noise = (10 ** (-db / 10) for db in (layer.isolated_sqnr_db, layer.sqnr_db))
    return -10 * math.log10(all_noise - own) if own < all_noise else None


def _change(op: OpPlan, products: Collection[str], mild: bool) -> str:
    read = [p for p in op.operands.values() if p.kind in ("static", "dynamic")]
    weights = [p.encoding for p in op.operands.values() if p.kind == "weight"]
    # Less than a byte is stored for each element, scales included.
    few = any(get_format(e.format).stored_bytes(e) < math.prod(e.shape) for e in weights)
    if few and (mild or not read):
        return "weights.format=int8, weights.granularity=per-channel"
    wide = weights and all(f"int16 x {enc.format}" in products for enc in weights)
    if mild and wide and any(p.encoding.format == "int8" for p in read):
        return "activations.format=int16"
    return FLOAT


def pattern(name: str) -> str:
    """A pattern that matches this name alone."""
    literal = glob.escape(name)
    return f"[r]{literal[1:]}" if literal.startswith("re:") else literal
