"""How a batch of graphs is compiled: pipeline, formats, placement, target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# What runs on this processor, or on any x86-64; the last have limits of their own.
TARGETS = ("llvm-cpu", "llvm-cpu", "llvm-cpu", "llvm-cpu-generic", "x86-64-v3", "tflite-int8-like")
DEVICES = ("npu-int8", "ethos-u-like", "tflite-int8-like")
WEIGHTS = ("int8", "uint8", "int4", "uint4", "int2", "int16", "float8_e4m3fn", "float8_e5m2")
BLOCKS = ("mxfp4", "mxfp6_e2m3", "mxfp8_e4m3", "mxint8", "nvfp4", "nf4")
GGML = ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k")

NO_INTEGER_FORM = ("remainder", "sort", "scatter", "compare and select", "select_and_scatter")


@dataclass(frozen=True)
class Kind:
    """Attributes:
    rounds: products read what has been rounded, so that their results are no multiples of 1/16.
    """

    pipeline: str
    settings: tuple[str, ...] = ()
    target: str = "llvm-cpu"

    @property
    def rounds(self) -> bool:
        return self.pipeline != "float"

    @property
    def codes(self) -> int:
        """The largest number of weights: the format's own, times a power of two."""
        name = " ".join((self.pipeline, *self.settings))
        return 112 if "fp8" in name or "float8" in name or "int4" in name else 127

    @property
    def without(self) -> tuple[str, ...]:
        """What is refused where no float may be left."""
        return NO_INTEGER_FORM if self.pipeline == "int8-static-integer-only" else ()

    def __str__(self) -> str:
        return " ".join((self.pipeline, self.target, *self.settings))


def kind_of(number: int) -> Kind:
    """The kind of a batch. Recovery looks for better values, at length; it has tests of its own."""
    rng = np.random.default_rng((7, number))

    def one(*options: str) -> str:
        return str(options[int(rng.integers(len(options)))])

    scheme = f"weights.scheme={one('symmetric', 'symmetric', 'asymmetric')}"
    settings = ["recovery=false", "min_elements=1"]
    match number % 8:
        case 0:
            return Kind("float", (), one(*TARGETS[:-1]))
        case 1:
            name = one("int8-weight-only", "int4-weight-only", "fp8-weight-only")
            given = [scheme] if name == "int8-weight-only" else []
            return Kind(name, (*settings, *given), one(*TARGETS[:-1]))
        case 2:
            chosen = one(*WEIGHTS, *BLOCKS, *GGML)
            grain = "per-block" if chosen in BLOCKS + GGML else one("per-channel", "per-tensor")
            written = (f"weights.format={chosen}", f"weights.granularity={grain}")
            return Kind("int8-weight-only", (*settings, *written), "llvm-cpu")
        case 3 | 4:
            pieces = [
                f"activations.scheme={one('symmetric', 'asymmetric')}",
                f"activations.granularity={one('per-token', 'per-tensor')}",
                f"placement={one('hybrid', 'late')}",
                f"activation_products={one('int8', 'float')}",
            ]
            return Kind("int8-dynamic", (*settings, *pieces), one(*TARGETS[:-1], "npu-per-tensor"))
        case 5:
            return Kind(one("int4-dynamic", "int8x16-static"), tuple(settings), "llvm-cpu")
        case 6:
            placed = f"placement={one('hybrid', 'late', 'early')}"
            products = f"activation_products={one('int8', 'float')}"
            acts = f"activations.scheme={one('symmetric', 'asymmetric')}"
            pieces = [placed, products, acts]
            return Kind("int8-static", (*settings, *pieces), one(*TARGETS[:-1]))
        case _:
            return Kind("int8-static-integer-only", tuple(settings), one("llvm-cpu", *DEVICES))
