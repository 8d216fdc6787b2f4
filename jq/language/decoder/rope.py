"""Rotary positions: at position p, pair i of a head is turned by the angle p * frequency[i].

Su et al. 2021. Longer contexts scale the frequencies: all alike (`linear`; Chen et al. 2023), the
slow ones alone (`llama3`; as in Llama 3.1), the slow ones more than the fast ones (`yarn`; Peng et
al. 2023), each by a factor of its own (`longrope`; Ding et al. 2024)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.base.errors import UserError

MOST = 1 << 16  # elements of a head; what a file says beyond it is no head


@dataclass(frozen=True)
class Rope:
    """Frequencies in radians per token of the pairs that are turned, the fastest first.

    `scale` multiplies cosines and sines. Elements of a head after `2 * len(frequencies)` stay. In a
    context of more than `original` tokens frequencies are those of `long`, where it has any.
    `heat`, of (b, n, first): queries at position p are multiplied by 1 + b log(1 + floor((p +
    first) / n)) (Nakanishi 2025)."""

    frequencies: tuple[float, ...]
    scale: float = 1.0
    long: tuple[float, ...] = ()
    original: int = 0
    heat: tuple[float, float, float] = (0.0, 1.0, 0.0)

    def __post_init__(self) -> None:
        if not np.isfinite([*self.frequencies, *self.long, self.scale, *self.heat]).all():
            raise UserError("rotary positions have a frequency or a scale that is not finite")
        if not self.heat[1] > 0:
            raise UserError(f"queries cannot grow with each {self.heat[1]} positions")

    def divided(self, factors: Sequence[float]) -> "Rope":
        """The same, each frequency divided by its own factor; `ValueError` for another count."""
        if len(factors) != len(self.frequencies):
            raise ValueError(f"{len(factors)} factors of {len(self.frequencies)} frequencies")
        with np.errstate(all="ignore"):  # what is not finite is refused
            own = np.asarray(self.frequencies) / np.asarray(factors, np.float64)
        return replace(self, frequencies=tuple(own))

    def tables(self, count: int, context: int) -> dict[str, np.ndarray]:
        """`cos` and `sin` of the first `count` positions, f32[count, pairs], in a `context`, and
        `heat` f32[count]; each where it is there. Angles are computed in double precision: far
        along a sequence float32 has lost their fraction of a turn."""
        chosen = self.long if self.long and context > self.original else self.frequencies
        angles = np.arange(count)[:, None] * np.asarray(chosen, np.float64)
        cos, sin = np.cos(angles) * self.scale, np.sin(angles) * self.scale
        found = {"cos": cos, "sin": sin} if self.frequencies else {}
        weight, size, first = self.heat
        if weight:
            found["heat"] = 1 + weight * np.log1p(np.floor((np.arange(count) + first) / size))
        return {name: table.astype(np.float32) for name, table in found.items()}


def plain(base: float, dims: int, factor: float = 1.0) -> Rope:
    """`dims` turned elements; positions divided by `factor`."""
    return Rope(tuple(_frequencies(base, dims, factor) / factor))


def llama3(f: np.ndarray, factor: float, low: float, high: float, original: int) -> Rope:
    """Frequencies of fewer than `low` turns in `original` tokens are divided by `factor`, of more
    than `high` kept, and between the two blended."""
    kept = np.clip((original * f / (2 * math.pi) - low) / (high - low), 0, 1)
    return Rope(tuple(f * kept + f / factor * (1 - kept)))


def yarn(f: np.ndarray, base: float, factor: float, original: int, get: Any) -> tuple[float, ...]:
    """Pairs of more than `beta_fast` turns in `original` tokens keep their frequency, of fewer than
    `beta_slow` it is divided by `factor`, in between by index, whose ends are whole if `truncate`;
    `get` gives these three."""
    turns = get("beta_fast", 32.0) or 32.0, get("beta_slow", 1.0) or 1.0
    places = [math.log(original / (n * 2 * math.pi)) * len(f) / math.log(base) for n in turns]
    first, last = places
    if get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * len(f) - 1)
    ramp = np.clip((np.arange(len(f)) - first) / (last - first or 0.001), 0, 1)
    return tuple(f / factor * ramp + f * (1 - ramp))


def scaled(kind: str, base: float, dims: int, context: int, get: Callable[..., Any]) -> Rope:
    """Positions of a model of `context` tokens as the `rope_parameters` of a `config.json` say:
    their `kind`, and what `get` gives by its key there and a default, without which it has to be
    there. `ValueError` for a kind that is not known.

    Those of longrope are divided by factors of their own, others in more than the original context.
    The scale of yarn is the ratio of two where a file has both, `mscale` and `mscale_all_dim`."""
    # "dynamic" changes what is longer than the model's context, "mrope" positions of pictures.
    if kind in ("default", "dynamic", "mrope"):
        return plain(base, dims)
    if kind not in ("linear", "llama3", "longrope", "su", "yarn"):
        raise ValueError(f"rotary positions are scaled by {kind!r}, which is not known")
    said = get("original_max_position_embeddings", context)
    if said < 1 or said != (original := int(said)):
        raise ValueError(f"positions are scaled from those of {said} tokens")
    scale = get("attention_factor", 0.0)
    if kind in ("longrope", "su"):
        lists = [get(f"{name}_factor", []) for name in ("short", "long")]
        near, far = (plain(base, dims).divided(factors).frequencies for factors in lists)
        own = get("short_mscale", 0.0)  # of Phi 3.5 with experts
        if get("long_mscale", own) != own:
            raise ValueError("short_mscale and long_mscale differ")
        scale = scale or own or longrope_scale(get("factor", context / original), original)
        return Rope(near, scale, far, original)
    factor = get("factor", context / original if kind == "yarn" else None)
    if kind == "linear":
        return plain(base, dims, factor)
    if kind == "llama3":
        low, high = get("low_freq_factor"), get("high_freq_factor")
        return llama3(_frequencies(base, dims, factor), factor, low, high, original)
    upper, lower = get("mscale", 0.0), get("mscale_all_dim", 0.0)
    both = yarn_scale(factor, upper) / yarn_scale(factor, lower) if upper and lower else 0.0
    found = yarn(_frequencies(base, dims, factor), base, factor, original, get)
    return Rope(found, scale or both or yarn_scale(factor))


def yarn_scale(factor: float, weight: float = 1.0) -> float:
    """Factor of cosines and sines where frequencies are divided by `factor`."""
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


def longrope_scale(factor: float, original: int) -> float:
    """Factor of cosines and sines in a context `factor` times as long as the `original` one."""
    if factor <= 1:
        return 1.0
    if original < 2:
        raise UserError(f"rotary positions of a context of {original} cannot be scaled")
    return math.sqrt(1 + math.log(factor) / math.log(original))


def _frequencies(base: float, dims: int, factor: float = 1.0) -> np.ndarray:
    if not base > 1 or not 2 <= dims <= MOST or dims % 2 or not factor > 0:
        what = f"no rotary positions of base {base} on {dims} elements, scaled by {factor}"
        raise UserError(what)
    return np.asarray(base ** (-np.arange(0, dims, 2, dtype=np.float64) / dims))
