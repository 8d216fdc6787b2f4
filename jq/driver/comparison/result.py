"""Results of a comparison: errors of outputs and layers, ranges of activations, metrics.

`jq.driver.comparison.outputs` defines the figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from jq.base.tables import Shown, plain_table
from jq.driver.comparison.metrics import AGREEMENTS, BETWEEN


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

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "shape": list(self.shape)}


@dataclass(frozen=True)
class LayerError:
    """Error of one op's result inside the model.

    `sqnr_db`, `cosine` and `max_abs_error` are accumulated: of the quantized model against the
    float model. `isolated_*`: this op alone is quantized, what it reads is float.
    """

    name: str
    op: str
    sqnr_db: float
    cosine: float
    max_abs_error: float
    isolated_sqnr_db: float
    isolated_cosine: float
    isolated_max_abs_error: float

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class ActivationRange:
    """The values that an op reads in the float model, and how they are quantized.

    Attributes:
        name: `<op name>:<operand number>`.
        kind: `static`, `dynamic`, `given` (by the model itself) or `float`.
        low, high: smallest and largest value.
        clip_low, clip_high: the ends of what static codes stand for; None for other kinds.
        saturation: share of the elements beyond these ends (0 for other kinds).
    """

    name: str
    kind: str
    low: float
    high: float
    clip_low: float | None
    clip_high: float | None
    saturation: float

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


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
            "outputs": [o.to_dict() for o in self.outputs],
            "layers": [layer.to_dict() for layer in self.layers],
            "activations": [a.to_dict() for a in self.activations],
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
            error.append(f" {o.match:.2%} equal" if o.match is not None else "")
            table.add_row(o.name, shape, f"{o.sqnr_db:.2f}", *cosines, error)
        for name, both in self.metrics.items():
            values = ", ".join(f"{kind} {value:.4f}" for kind, value in both.items())
            if name in BETWEEN:
                share = " of the samples" if name in AGREEMENTS else ""
                values = f"{both['quantized']:.4f}{share}"
            table.add_row(Text(name, style="bold"), values)
        return table
