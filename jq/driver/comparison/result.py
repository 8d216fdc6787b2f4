"""Results of a comparison: errors of outputs and layers, ranges of activations, metrics.

`jq.driver.comparison.outputs` defines the figures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from jq.base.tables import Shown, plain_table
from jq.driver.comparison.metrics import AGREEMENTS, BETWEEN

FLOOR_DB = 15.0  # below this an output is far from the float model's: nobody wants it unawares


class ErrorSum:
    """Running error of one tensor; `add` takes samples as rows: [n, ...] or, with one, [...]."""

    def __init__(self) -> None:
        self.signal = self.noise = self.max_error = 0.0
        self.cosines: list[float] = []
        self.equal = self.count = self.nonfinite = self.undefined = 0

    def add(self, reference: np.ndarray, quantized: np.ndarray, samples: int = 1) -> None:
        r, q = _rows(reference, samples), _rows(quantized, samples)
        same, broken = r == q, np.zeros(samples, bool)
        finite = np.isfinite(r) & np.isfinite(q)
        if not finite.all():
            undefined = np.isnan(r)
            same |= undefined & np.isnan(q)
            wrong = ~finite & ~same
            self.undefined += int(undefined.sum())
            self.nonfinite += int(wrong.sum())
            r, q, broken = np.where(finite, r, 0.0), np.where(finite, q, 0.0), wrong.any(1)
        error = r - q
        self.equal += int(same.sum())
        self.count += r.size
        self.signal += float(np.sum(r * r))
        self.noise += float(np.sum(error * error))
        self.max_error = max(self.max_error, float(np.max(np.abs(error), initial=0.0)))
        self.cosines += np.where(broken, 0.0, cosine_of_rows(r, q)).tolist()

    @property
    def sqnr_db(self) -> float:
        if self.nonfinite:
            return -math.inf
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def max_abs_error(self) -> float:
        return math.inf if self.nonfinite else self.max_error

    @property
    def cosine(self) -> float:
        return float(np.mean(self.cosines)) if self.cosines else 1.0


def _rows(array: np.ndarray, samples: int) -> np.ndarray:
    """f64[samples, n]; a complex number is two numbers."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.astype(np.float64).reshape(samples, array.size // max(samples, 1))


def cosine_of_rows(r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The cosine of each pair of rows of [n, d], in [-1, 1]: 1 where both are zero, 0 where one is.

    Rows are divided by their largest magnitude first, so that squares neither overflow nor vanish.
    """
    most = [np.max(np.abs(x), axis=1, keepdims=True, initial=0.0) for x in (r, q)]
    a, b = (x / np.where(m > 0, m, 1.0) for x, m in zip((r, q), most, strict=True))
    norms = np.sqrt(np.sum(a * a, axis=1) * np.sum(b * b, axis=1))  # exact where a equals b
    both_zero = (most[0] == 0)[:, 0] & (most[1] == 0)[:, 0]
    cosine = np.sum(a * b, axis=1) / np.where(norms > 0, norms, 1.0)
    return np.where(both_zero, 1.0, np.clip(cosine, -1.0, 1.0))


def is_integer(array: np.ndarray) -> bool:
    """True if an array holds integers or truth values; those of `ml_dtypes` (int4) too."""
    return array.dtype.kind in "iub" or array.dtype.name.startswith(("int", "uint"))


@dataclass(frozen=True)
class OutputError:
    """Error of one output; `match` is the share of equal elements of an integer output."""

    name: str
    shape: tuple[int, ...]
    sqnr_db: float
    cosine: float
    cosine_min: float
    max_abs_error: float
    match: float | None
    nonfinite: int = 0
    undefined: int = 0


@dataclass(frozen=True)
class LayerError:
    """Error of one op's result inside the model. `sqnr_db`, `cosine` and `max_abs_error` are
    accumulated: of the quantized model against the float model. `isolated_*`: this op alone is
    quantized, what it reads is float."""

    name: str
    op: str
    sqnr_db: float
    cosine: float
    max_abs_error: float
    isolated_sqnr_db: float
    isolated_cosine: float
    isolated_max_abs_error: float


@dataclass(frozen=True)
class ActivationRange:
    """The values that an op reads in the float model, and how they are quantized.

    Attributes:
        name: `<op name>:<operand number>`.
        kind: `static`, `dynamic`, `given` (by the model itself) or `float`.
        low, high: smallest and largest value.
        clip_low, clip_high: the ends of what static codes stand for; None for other kinds.
        saturation: share of the elements beyond these ends (0 for other kinds)."""

    name: str
    kind: str
    low: float
    high: float
    clip_low: float | None
    clip_high: float | None
    saturation: float


@dataclass(frozen=True)
class Inside:
    """Figures from inside a model."""

    layers: tuple[LayerError, ...] = ()
    activations: tuple[ActivationRange, ...] = ()


NOTHING_INSIDE = Inside()


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Errors per output, layer and activation, and metrics of both models."""

    outputs: tuple[OutputError, ...]
    layers: tuple[LayerError, ...] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: int = 0
    activations: tuple[ActivationRange, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq compare --json`."""
        return {
            "outputs": [{**vars(o), "shape": list(o.shape)} for o in self.outputs],
            "layers": [dict(vars(layer)) for layer in self.layers],
            "activations": [dict(vars(a)) for a in self.activations],
            "metrics": {name: dict(both) for name, both in self.metrics.items()},
            "samples": self.samples,
        }

    def table(self) -> Table:
        title = f"Quantized against float, {self.samples} samples"
        table = plain_table(
            "output", "shape", "SQNR dB", "cosine", "worst", "max |error|", title=title
        )
        for o in self.outputs:
            shape = "x".join(map(str, o.shape)) or "scalar"
            cosines = f"{o.cosine:.6f}", f"{o.cosine_min:.6f}"
            error = Text(f"{o.max_abs_error:.4g}")
            error.append(f" {o.nonfinite} not finite" if o.nonfinite else "", style="red")
            error.append(f" float has {o.undefined} NaN" if o.undefined else "", style="red")
            error.append(f" {o.match:.2%} equal" if o.match is not None else "")
            table.add_row(o.name, shape, f"{o.sqnr_db:.2f}", *cosines, error)
        for name, both in self.metrics.items():
            values = ", ".join(f"{kind} {value:.4f}" for kind, value in both.items())
            if name in BETWEEN:
                share = " of the samples" if name in AGREEMENTS else ""
                values = f"{both['quantized']:.4f}{share}"
            table.add_row(Text(name, style="bold"), values)
        return table
