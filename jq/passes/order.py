"""The order of the whole compiler: every pass, why it stands where it stands, and when it runs.

A pipeline file holds settings and rules; which of these passes run follows from the settings
alone. `float` passes run before calibration and planning, `qdq` passes carry out the plan,
`integer` passes turn what is between quantize and dequantize into integer arithmetic, `target`
passes put kernels in its place, and the last ones rewrite what IREE's compiler gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.base.errors import InternalError
from jq.ir.ops.lookup import contraction
from jq.passes.base import Pass, known_passes, make_pass
from jq.passes.iree_mends.mend import Mend
from jq.target.settings import FLOAT, Settings

Level = Literal["float", "qdq", "integer", "target"]
LEVELS: tuple[Level, ...] = ("float", "qdq", "integer", "target")


@dataclass(frozen=True)
class When:
    """A condition on the settings, and how it is said in words."""

    text: str
    holds: Callable[[Settings], bool]

    def __and__(self, other: When) -> When:
        return When(f"{self.text}, and {other.text}", lambda s: self.holds(s) and other.holds(s))


def _static(s: Settings) -> bool:
    return s.activations.format != FLOAT and s.activations.mode == "static"


ALWAYS = When("always", lambda s: True)
STATIC = When("activations have calibrated ranges", _static)
NOT_STATIC = When("activations have no calibrated ranges", lambda s: not _static(s))
EARLY = When("placement=early", lambda s: s.placement == "early")
LATER = When("placement is hybrid or late", lambda s: s.placement != "early")
STORED_SUMS = When("convolution_sums=codes", lambda s: s.convolution_sums == "codes")
FEATURE_MAPS = When(
    "op_types has an op that makes feature maps (convolution)",
    lambda s: any((rule := contraction(op)) and rule.feature_map for op in s.op_types),
)
INTEGER_ONLY = When("integer_only=true", lambda s: s.integer_only)
WITH_FLOATS = When("integer_only=false", lambda s: not s.integer_only)


@dataclass(frozen=True)
class Step:
    """One pass in the order: its name, why it is here, when it runs, and its options.

    A mend is there because of its defects; `why` says what else decides its place.
    """

    name: str
    why: str = ""
    when: When = ALWAYS
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Pass:
        return make_pass(self.name, self.options)

    def reason(self) -> str:
        """The reason for the pass, and its place."""
        kind = known_passes()[self.name]
        told = [kind.defects()[0].what] if issubclass(kind, Mend) else []
        return "; ".join([*told, *filter(None, [self.why])])


def mends(names: str) -> Iterator[Step]:
    """Steps whose places are not decided by more than their defects."""
    return map(Step, names.split())


# Recovery passes that lost to others at everything that was measured, and what to use.
REMOVED = {"adaround": "use gptq, which is closer and takes less time"}

ORDER: dict[Level, tuple[Step, ...]] = {
    "float": (
        Step(
            "widen-floats", "runs first, so that all later passes meet one float type only", EARLY
        ),
        Step(
            "expand-fake-quant",
            "fake quantization in the model decides how its tensors are quantized",
        ),
        Step(
            "recognize-products",
            "products of quantized values in the model are planned like all others",
        ),
        Step(
            "recognize-dequantize",
            "keeps values that the model itself stores quantized; fold-weights would turn them"
            " into floats",
        ),
        Step(
            "unroll-loops",
            "each layer of a scan gets constants and ranges of its own",
            STATIC & EARLY,
        ),
        Step(
            "rotate-loops",
            "the conditions of loops that are not unrolled can be quantized where they"
            " are computed",
            STATIC & EARLY,
        ),
        Step("clamp-indices"),
        Step("saturate-converts", "at this point only the model's own conversions exist"),
        Step(
            "distribute-products",
            "a stored weight stays stored; fold-weights would compute floats from weights alone",
        ),
        Step(
            "fold-ones",
            "a mask of heads that is all ones would hide the product that it multiplies",
        ),
        Step(
            "move-transposes",
            "removes transposes between convolutions; fold-weights computes those of weights",
        ),
        Step(
            "fold-weights",
            "a value that is computed from weights alone is a weight, and can be quantized",
        ),
        Step("fold-scales", "a batch normalization or a bias becomes one weight and one constant"),
        Step(
            "split-upsampling",
            "scales of channels are folded; later passes see the convolution that is computed",
        ),
        Step(
            "absorb-transposes",
            "packed weights cannot be transposed, but a product can read them as they are",
        ),
        Step(
            "rotate",
            "biases are single constants at this point, and passes that scale channels follow",
        ),
        Step(
            "awq",
            "scales channels so that weights lose less by rounding; later passes see the result",
            NOT_STATIC,
        ),
        Step(
            "rotate-online",
            "at this point products have the operands that will be quantized",
            WITH_FLOATS,
        ),
        Step("smooth", "scales down the outlier channels that rotations have left", WITH_FLOATS),
        Step(
            "equalize",
            "scales the channels that smooth has left, where convolutions or ReLU lie between",
            STATIC,
        ),
        Step(
            "split-slopes",
            "runs before decline-ops: it makes what the device has of what it has not",
            STATIC & EARLY,
        ),
        Step(
            "decline-ops",
            "ops have the form that the device gets; those that it cannot compute get no edges",
            STATIC & EARLY,
        ),
        Step(
            "mark-edges",
            "runs last: every tensor that it marks is observed, and will be quantized",
            STATIC & EARLY,
        ),
        Step(
            "mark-residuals",
            "runs last, for the same reason as mark-edges: these tensors are observed, and will"
            " be quantized",
            STATIC & LATER & FEATURE_MAPS & STORED_SUMS & WITH_FLOATS,
        ),
    ),
    "qdq": (
        Step("gptq", "runs first: it runs the program of the float level on the calibration data"),
        Step("clip", "clips the weights that gptq does not round: embeddings, weights in loops"),
        Step(
            "tune",
            "the integers of all weights are chosen; it corrects the error of all layers together",
            WITH_FLOATS,
        ),
        Step("bias-correction", "the integers of all weights are chosen; it measures their error"),
        Step(
            "place-float-types",
            "ops that stay float get their type before other passes move values around them",
        ),
        Step(
            "quantize-cache",
            "reading a cache becomes a dequantize, which later passes move to its place",
        ),
        Step("place-edges", "marked tensors are quantized before the operands of products", STATIC),
        Step("place-weights", "every later pass works on low-bit data"),
        Step(
            "place-activations",
            "finds operands by the name of their op, before other passes move them",
        ),
        Step("sink-dequantize", "brings each dequantize next to the op that computes"),
        Step("fit-biases", "scales of weights and of activations are known", INTEGER_ONLY),
        Step(
            "carry-codes",
            "loops and branches carry quantized values, so that hoist-quantize can pass them",
            STATIC,
        ),
        Step("hoist-quantize", "runs last: all quantize and dequantize ops are in place"),
    ),
    "integer": (
        Step(
            "fold-quantize",
            "a dequantize and the quantize after it become one step for the following passes",
        ),
        Step(
            "lower-regions",
            "everything between a dequantize and a quantize becomes integer arithmetic",
            STATIC & EARLY,
        ),
        Step(
            "requantize",
            "a convolution with quantized operands and result is one step; runs before"
            " lower-contractions, which would split it",
            WITH_FLOATS,
        ),
        Step(
            "lower-contractions",
            "all other contractions multiply the quantized values themselves",
            WITH_FLOATS,
        ),
        Step(
            "verify-integer",
            "proves that there is no float op between the first quantize and the last dequantize",
            INTEGER_ONLY,
        ),
    ),
    "target": (
        Step(
            "unroll-loops",
            "runs first: kernels take weights that are constants, and each layer of a scan then"
            " has its own",
            WITH_FLOATS,
            {"stacks": True},
        ),
        Step(
            "kernel-integer-attention",
            "runs before single products are taken: the probabilities stay in the caches",
            WITH_FLOATS,
        ),
        Step(
            "kernel-blocks",
            "takes products whose weights have blocks or less than 8 bits; the next"
            " passes take the others",
            WITH_FLOATS,
        ),
        Step("kernel-gemm", "int8 matrix products become kernels"),
        Step("kernel-convolution", "int8 convolutions become kernels"),
        Step(
            "kernel-attention",
            "float attention becomes one kernel: scores and probabilities stay in the caches",
            WITH_FLOATS,
        ),
        Step(
            "kernel-normalize",
            "a normalization and the quantize of its result become one kernel",
            WITH_FLOATS,
        ),
        Step(
            "kernel-ranges",
            "values quantized with ranges found at run time are marked for the next pass",
            WITH_FLOATS,
        ),
        Step(
            "kernel-quantize",
            "quantizing the operand of a product becomes one kernel, which reads it once",
            WITH_FLOATS,
        ),
        Step(
            "kernel-views",
            "all kernels are chosen: values are stored as signed or unsigned bytes, as"
            " their readers need them",
        ),
        Step(
            "kernel-merge",
            "products of the same operand become one, after its signed or unsigned form"
            " and its readers are known",
            WITH_FLOATS,
        ),
        Step(
            "kernel-rows",
            "runs after products are merged: rows are normalized or quantized in the"
            " kernel of their product",
            WITH_FLOATS,
        ),
        Step(
            "kernel-hidden-rows",
            "runs after kernels are merged: rows of padding are left out",
            WITH_FLOATS,
        ),
        Step(
            "kernel-updates",
            "caches have the type that they are stored in: rows of them are written by a kernel,"
            " without waiting on the host for where",
            WITH_FLOATS,
        ),
        Step(
            "kernel-chain",
            "runs after all kernels over rows are chosen: what is done to the rows of a token"
            " is less than a dispatch for each step",
            WITH_FLOATS,
        ),
        Step("kernel-frames", "the kernel that computes an image stores it with its padding"),
        Step(
            "kernel-pairs",
            "runs after the forms of products are fixed: it replaces kernels by faster"
            " ones with the same bits",
        ),
        Step(
            "kernel-decode",
            "products of quantized weights and float activations dequantize in registers",
            WITH_FLOATS,
        ),
        Step("sum-products", "rewrites float products without a kernel", WITH_FLOATS),
        Step("patch-convolutions", "rewrites float convolutions without a kernel", WITH_FLOATS),
        # From here on: what the compiler needs, whatever the settings.
        Step("lower-markers", "markers without a kernel become plain arithmetic"),
        *mends(
            "unroll-rounds plain-nibbles keep-blocks multiply-outer widen-depthwise "
            "widen-convolutions shield-unsigned order-broadcasts plain-windows plain-transforms"
        ),
        Step("plain-select-and-scatter", "makes a scatter, which the next pass rewrites"),
        Step("plain-scatters"),
        Step("gather-slices", "makes gathers, which clamp-indices reads"),
        Step("clamp-indices", "kernels and loops have moved some indices away from their clamp"),
        *mends("plain-powers plain-arctangents"),
        Step("plain-functions", "powers bring some of them"),
        Step("stable-sorts"),
        Step("round-to-bfloat16", "runs after all passes that may convert to bfloat16"),
        Step("round-to-exponents"),
        Step("plain-unsigned", "runs after the passes that distinguish unsigned integers"),
        *mends(
            "shield-splats shield-carries shield-starts shield-reversals shield-slices "
            "shield-reads shield-booleans shield-pads shield-strides shield-updates "
            "shield-equal shield-reductions"
        ),
    ),
}


def steps() -> dict[Level, tuple[Step, ...]]:
    """The order, with passes from outside this package where they say that they belong."""
    found = {level: list(ORDER[level]) for level in LEVELS}
    for kind in known_passes().values():
        if (place := kind.after) is None:
            continue
        for level in LEVELS:
            names = [step.name for step in found[level]]
            if place in names:
                found[level].insert(names.index(place) + 1, Step(kind.name, kind.__doc__ or ""))
                break
        else:
            raise InternalError(f"pass {kind.name} wants to run after {place!r}, which is no pass")
    return {level: tuple(each) for level, each in found.items()}


def passes_for(settings: Settings) -> dict[Level, tuple[Pass, ...]]:
    """The passes that run under these settings, level by level."""
    return {
        level: tuple(step.make() for step in each if step.when.holds(settings))
        for level, each in steps().items()
    }
