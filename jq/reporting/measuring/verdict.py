"""Measurements in words: how close, which layers, how reliable a latency."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import FLOOR_DB, Comparison, LayerError

# dB of signal over noise, and what one calls that: at 40 noise is a hundredth of the signal.
CLOSE = ((40.0, "very close to"), (25.0, "close to"), (FLOOR_DB, "visibly off from"))
FAR = "far from"
NOISY = 1.5  # times the median: a 90th percentile beyond it says that something else was running


def closeness(sqnr_db: float) -> str:
    """`very close to`, `close to`, `visibly off from` or `far from` (the float model)."""
    if math.isinf(sqnr_db) and sqnr_db > 0:
        return "equal to"
    return next((words for least, words in CLOSE if sqnr_db >= least), FAR)


def outputs_verdict(comparison: Comparison) -> str:
    """Closeness of the worst output, in a sentence without its full stop."""
    errors = worst(comparison.outputs)
    db = errors["sqnr_db"]
    text = f"the outputs are {closeness(db)} the float model's"
    samples = f"{comparison.samples} sample{'s' * (comparison.samples != 1)}"
    if math.isinf(db) and db > 0:
        return f"{text} on {samples}"
    noise = 100 * 10 ** (-db / 20) if math.isfinite(db) else math.inf
    return (
        f"{text}: noise is {noise:.2g} % of the signal ({db:.1f} dB), and the cosine is"
        f" {errors['cosine_min']:.5f} or more on each of {samples}"
    )


def furthest(layers: Sequence[LayerError], count: int = 1) -> list[LayerError]:
    """The quantized layers that make most noise by themselves, the worst first."""
    made = [layer for layer in layers if layer.isolated_sqnr_db < math.inf]
    return sorted(made, key=lambda layer: layer.isolated_sqnr_db)[:count]


def layer_verdict(layers: Sequence[LayerError]) -> str:
    """The layer that makes most noise, in a sentence without its full stop; nothing without any."""
    for layer in furthest(layers):
        return (
            f"the worst layer is {layer.name}: {layer.isolated_sqnr_db:.1f} dB by itself,"
            f" {layer.sqnr_db:.1f} dB with all before it"
        )
    return ""


def noise_warning(latency: Mapping[str, Any], whose: str = "the latency") -> str:
    """Says that a latency was measured on a busy machine; nothing when it was quiet."""
    median, p90 = latency["median_ms"], latency["p90_ms"]
    if p90 <= NOISY * median:
        return ""
    return (
        f"{whose} was noisy (median {median:.3g} ms, p90 {p90:.3g} ms): something else ran;"
        " measure it again on a quiet machine"
    )


def number(value: float | None) -> str:
    """A number as a person reads it."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.5g}" if abs(value) < 1e5 or value % 1 else f"{value:.0f}"
