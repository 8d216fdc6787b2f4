"""Ways to compile a batch of graphs: pipeline, formats, placement, target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suites.differential.graph import Codes

# What runs on this processor, or on any x86-64; the last have limits of their own.
TARGETS = ("llvm-cpu", "llvm-cpu", "llvm-cpu", "llvm-cpu-generic", "x86-64-v3", "litert-reference")
DEVICES = ("npu-int8", "ethos-u55", "litert-reference")
WEIGHTS = ("int8", "uint8", "int4", "uint4", "int2", "int16", "float8_e4m3fn", "float8_e5m2")
BLOCKS = ("mxfp4", "mxfp6_e2m3", "mxfp8_e4m3", "mxint8", "nvfp4", "nf4")
GGML = ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k")

# Of weights, so that the format's scale is a power of two, or what is decoded has few bits at
# least: sums then do not depend on their order. Other scales make ties that rounding decides,
# which evaluators may do differently.
CODES = {
    "int4": Codes(-112, 112),  # 7 times 16
    "float8_e4m3fn": Codes(-112, 112),  # 448 / 4
    "float8_e5m2": Codes(-112, 112),  # 57344 / 512
    "mxfp8_e4m3": Codes(-112, 112),
    "nvfp4": Codes(-84, 84),  # 6 * 448 / 32: the scale of the tensor, and the largest of a block
    "int16": Codes(-32767, 32767),
    "q4_0": Codes(-128, 112),  # that of largest magnitude is code -8
    "q5_0": Codes(-128, 120),
    "q4_1": Codes(-128, 112),  # 15 steps of 16
    "nf4": Codes(-127, 127, ends=True),  # its other numbers are no multiples of anything
}
ZERO_POINT = {"int8": Codes(-128, 127), "int4": Codes(-128, 112, alone=-120)}

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
    def splits(self) -> bool:
        """True where floats are multiplied with codes, in digits of int8 (`SplitRows`)."""
        return self.pipeline.endswith("weight-only")

    @property
    def weights(self) -> tuple[str, bool]:
        """The format of weights, and whether it has a zero point."""
        said = dict(piece.split("=") for piece in self.settings)
        known = {"int4-weight-only": ("int4", True), "fp8-weight-only": ("float8_e4m3fn", False)}
        name, zero = known.get(
            self.pipeline, ("int4" if "int4" in self.pipeline else "int8", False)
        )
        scheme = said.get("weights.scheme", "asymmetric" if zero else "symmetric")
        return said.get("weights.format", name).removeprefix("u"), scheme == "asymmetric"

    @property
    def codes(self) -> Codes:
        name, zero = self.weights
        return (ZERO_POINT if zero else CODES).get(name, Codes())

    @property
    def rows(self) -> Codes:
        """The format of rows that are looked up; a pipeline may store them by a rule of its own."""
        return Codes() if self.pipeline == "int4-weight-only" else self.codes

    @property
    def without(self) -> tuple[str, ...]:
        """Ops that are refused where no float may be left."""
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
