"""The order of the whole compiler: every pass, why it stands where it stands, and when it runs.

A pipeline file holds settings and rules; which of these passes run follows from the settings
alone. `float` passes run before calibration and planning, `qdq` passes carry out the plan,
`integer` passes turn what is between quantize and dequantize into integer arithmetic, `target`
passes put kernels in its place, and the last ones rewrite what IREE's compiler gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.errors import InternalError
from jq.ops.lookup import contraction
from jq.passes.base import Pass, known_passes, make_pass
from jq.settings import FLOAT, Settings

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
    """One pass in the order: its name, why it is here, when it runs, and its options."""

    name: str
    why: str
    when: When = ALWAYS
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Pass:
        return make_pass(self.name, self.options)


# Recovery passes that lost to others at everything that was measured, and what to use.
REMOVED = {
    "adaround": "use gptq, which is closer and takes less time",
    "equalize": "use weights.granularity=per-channel; with one scale a tensor, gptq and"
    " bias-correction",
}

ORDER: dict[Level, tuple[Step, ...]] = {
    "float": (
        Step(
            "widen-floats",
            "runs first, so that all later passes meet one float type only",
            EARLY,
        ),
        Step(
            "expand-fake-quant",
            "a model that was trained for quantization says itself how its tensors are quantized",
        ),
        Step(
            "recognize-products",
            "products of quantized values that the model brings are planned like all others",
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
            "the conditions of loops that are left can now be quantized where they are computed",
            STATIC & EARLY,
        ),
        Step("clamp-indices", "IREE reads out of bounds where StableHLO clamps"),
        Step(
            "saturate-converts",
            "IREE wraps where XLA saturates; at this point only the model's own conversions exist",
        ),
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
            "what is between convolutions comes into their order; weights that it transposes are"
            " folded next",
        ),
        Step(
            "fold-weights",
            "what is computed from weights alone is a weight, and can be quantized",
        ),
        Step(
            "fold-scales",
            "a batch normalization or a bias becomes one weight and one constant",
        ),
        Step(
            "split-upsampling",
            "scales of channels are in the weight; what follows sees the convolution that is"
            " computed",
        ),
        Step(
            "absorb-transposes",
            "packed weights cannot be transposed; a product can read them as they are",
        ),
        Step(
            "rotate",
            "biases are single constants by now, and everything that scales channels comes after",
        ),
        Step(
            "awq",
            "scales channels so that weights lose less by rounding; later passes see the result",
            NOT_STATIC,
        ),
        Step(
            "rotate-online",
            "at this point products read what they will read when they are quantized",
            WITH_FLOATS,
        ),
        Step(
            "smooth",
            "scales down the outlier channels that rotations have left",
            WITH_FLOATS,
        ),
        Step(
            "decline-ops",
            "ops have the form that the device will get; those that it lacks get no edges",
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
        Step(
            "gptq",
            "runs first: it needs the program as it was given, to run it on the calibration data",
        ),
        Step("clip", "clips the weights that the others have left: embeddings, weights in loops"),
        Step(
            "tune",
            "all quantized weights are chosen; it corrects what their layers do together",
            WITH_FLOATS,
        ),
        Step("bias-correction", "all quantized weights are chosen; it measures what they do"),
        Step(
            "place-float-types",
            "what stays float gets its type before anything around it moves",
        ),
        Step(
            "quantize-cache",
            "what is read from a cache becomes a dequantize, which later passes move to its place",
        ),
        Step(
            "place-edges",
            "marked tensors are quantized before the operands of products are looked at",
            STATIC,
        ),
        Step("place-weights", "every later pass works on low-bit data"),
        Step(
            "place-activations",
            "it finds operands by the name of their op, which holds until one moves",
        ),
        Step("sink-dequantize", "brings each dequantize next to the op that computes"),
        Step(
            "carry-codes",
            "loops and branches carry quantized values: hoist-quantize can move through them",
            STATIC,
        ),
        Step("hoist-quantize", "runs last: everything that it decides about is in place"),
    ),
    "integer": (
        Step(
            "fold-quantize",
            "a dequantize and the quantize after it become one step before other passes look at"
            " them",
        ),
        Step(
            "lower-regions",
            "everything between a dequantize and a quantize becomes integer arithmetic",
            STATIC & EARLY,
        ),
        Step(
            "requantize",
            "a convolution between quantized tensors is one step; lower-contractions would take it",
            WITH_FLOATS,
        ),
        Step(
            "lower-contractions",
            "contractions that are left multiply the quantized values themselves",
            WITH_FLOATS,
        ),
        Step("verify-integer", "proves that no float is left between", INTEGER_ONLY),
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
            "before single products: the probabilities stay in the caches",
            WITH_FLOATS,
        ),
        Step(
            "kernel-blocks",
            "takes products whose weights have blocks, or less than 8 bits; the others follow",
            WITH_FLOATS,
        ),
        Step("kernel-gemm", "products take the quantized values as they are", WITH_FLOATS),
        Step(
            "kernel-convolution", "convolutions take the quantized values as they are", WITH_FLOATS
        ),
        Step("kernel-attention", "scores and probabilities stay in the caches", WITH_FLOATS),
        Step("kernel-normalize", "a normalization quantizes its own result", WITH_FLOATS),
        Step(
            "kernel-ranges",
            "what is quantized by its own range is known by markers, which the next pass takes",
            WITH_FLOATS,
        ),
        Step("kernel-quantize", "what products read is quantized in one pass over it", WITH_FLOATS),
        Step(
            "kernel-views",
            "all kernels are known: values are stored in the view that their readers take",
            WITH_FLOATS,
        ),
        Step(
            "kernel-merge",
            "products of the same operand become one; the operand has one view by now, and its"
            " readers are known",
            WITH_FLOATS,
        ),
        Step(
            "kernel-rows",
            "products are merged: it is known which one makes which rows",
            WITH_FLOATS,
        ),
        Step("kernel-hidden-rows", "which kernel computes which rows is known", WITH_FLOATS),
        Step(
            "kernel-frames",
            "padding is stored in the view that is read, around what one kernel writes",
            WITH_FLOATS,
        ),
        Step(
            "kernel-pairs",
            "what products are and where their results go is settled; theirs are the same bits",
            WITH_FLOATS,
        ),
        Step(
            "kernel-decode",
            "stored weights that meet float activations are decoded in registers",
            WITH_FLOATS,
        ),
        Step(
            "sum-products",
            "float products that no kernel has taken: IREE copies the operands of a sum",
            WITH_FLOATS,
        ),
        Step(
            "patch-convolutions",
            "float convolutions that no kernel has taken: IREE is slow at some windows",
            WITH_FLOATS,
        ),
        # From here on: what the compiler needs, whatever the settings.
        Step("lower-markers", "whatever has no kernel becomes plain arithmetic"),
        Step("plain-nibbles", "IREE has no integers of 4 or 2 bits that can be relied on"),
        Step("keep-blocks", "blocks of a GGUF file are stored as they came"),
        Step("multiply-outer", "IREE loses conversions in products that sum over nothing"),
        Step("widen-depthwise", "IREE compiles narrow depthwise convolutions wrongly"),
        Step(
            "widen-convolutions",
            "IREE transposes filters where it uses Arm's matrix products of bytes",
        ),
        Step("shield-unsigned", "IREE takes unsigned operands of a contraction for signed ones"),
        Step("order-broadcasts", "IREE turns a broadcast that permutes into the wrong transpose"),
        Step("plain-windows", "IREE ignores some reversed windows and refuses some strides"),
        Step("plain-transforms", "IREE has Fourier transforms of some lengths only"),
        Step(
            "plain-select-and-scatter",
            "IREE has none; it becomes a scatter, which the next pass rewrites",
        ),
        Step("plain-scatters", "IREE has scatters of rows, and writes to rows that do not exist"),
        Step(
            "clamp-indices",
            "IREE reads out of bounds; kernels and loops have moved some indices away from their"
            " clamp",
        ),
        Step("plain-powers", "IREE's powers of negative numbers are NaN"),
        Step("plain-arctangents", "IREE's are off by up to 30 last places"),
        Step("stable-sorts", "IREE exchanges equal elements, and writes what others read"),
        Step(
            "round-to-bfloat16",
            "IREE calls functions that no module has; runs after all passes that may convert to"
            " bfloat16",
        ),
        Step(
            "plain-unsigned",
            "IREE loses or refuses unsigned integers in some ops; runs after the passes that"
            " have to know them",
        ),
        Step(
            "shield-splats",
            "IREE loses constants that kernels read inside and outside of loops",
        ),
        Step("shield-carries", "IREE crashes on loops with a carry that no step reads"),
        Step("shield-starts", "IREE deadlocks on an initial value of a loop that others read, too"),
        Step("shield-reversals", "IREE fails on reversals of every second element"),
        Step("shield-slices", "IREE fails on gathers from some slices"),
        Step("shield-reads", "IREE writes into tensors that a loop has still to read"),
        Step("shield-booleans", "IREE cannot pack truth values that a product reads as numbers"),
        Step("shield-pads", "IREE fails on what is padded twice with different values"),
        Step("shield-strides", "IREE loses what windows of one element step over"),
        Step("shield-updates", "IREE writes into tensors that it still reads"),
        Step("shield-equal", "IREE sums a constant once for each vector, not for each element"),
        Step("shield-reductions", "IREE takes sums of rows for sums of columns"),
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
