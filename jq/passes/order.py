"""The order of the whole compiler: every pass, why it stands where it stands, and when it runs.

A pipeline file holds settings and rules; which of these passes run follows from the settings alone.
`float` passes run before calibration and planning, `qdq` passes carry out the plan, `integer`
passes turn what is between quantize and dequantize into integer arithmetic, `target` passes put
kernels in its place, and the last ones rewrite what IREE's compiler gets wrong."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
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

    def __and__(self, other: "When") -> "When":
        return When(f"{self.text}, and {other.text}", lambda s: self.holds(s) and other.holds(s))


ALWAYS = When("always", lambda s: True)
CONDITIONS = {
    "static": When("activations have calibrated ranges", lambda s: s.activations.calibrated),
    "early": When("placement=early", lambda s: s.placement == "early"),
    "later": When("placement is hybrid or late", lambda s: s.placement != "early"),
    "stored-sums": When("convolution_sums=codes", lambda s: s.convolution_sums == "codes"),
    "maps": When(
        "op_types has an op that makes feature maps (convolution)",
        lambda s: any((rule := contraction(op)) and rule.feature_map for op in s.op_types),
    ),
    "blocks": When(
        "activations are quantized in blocks (granularity=per-block)",
        lambda s: s.activations.format != FLOAT and s.activations.granularity == "per-block",
    ),
    "integer-only": When("integer_only=true", lambda s: s.integer_only),
    "floats": When("integer_only=false", lambda s: not s.integer_only),
}


@dataclass(frozen=True)
class Step:
    """One pass in the order: its name, why it is here, when it runs, and its options.

    A mend is there because of its defects; `why` says what else decides its place."""

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


# Recovery passes that are gone, since others do better, and what to use.
REMOVED = {
    "adaround": "use gptq, which is closer and takes less time",
    "awq": "use gptq, which is closer, and whose worst case was made worse by awq",
    "tune": "--minutes N (minutes=N) trains scales on the program's output, and more than these",
}

# All passes: the name, options, when it runs (`CONDITIONS`), and why it stands where it stands. The
# names of mends that have no reason but their defects stand together. After `lower-markers` comes
# what the compiler needs, whatever the settings.
TABLE = """\
# float
widen-floats [early]: runs first, so that all later passes meet one float type only
expand-fake-quant: fake quantization in the model decides how its tensors are quantized
recognize-products: products of quantized values in the model are planned like all others
recognize-dequantize: keeps values that the model itself stores quantized; fold-weights would turn
    them into floats
unroll-loops [static early]: each layer of a scan gets constants and ranges of its own
rotate-loops [static early]: the conditions of loops that are not unrolled can be quantized where
    they are computed
clamp-indices
saturate-converts: at this point only the model's own conversions exist
distribute-products: a stored weight stays stored; fold-weights would compute floats from weights
    alone
fold-ones: a mask of heads that is all ones would hide the product that it multiplies
move-transposes: removes transposes between convolutions; fold-weights computes those of weights
fold-weights: a value that is computed from weights alone is a weight, and can be quantized
fold-scales: a batch normalization or a bias becomes one weight and one constant
split-upsampling: scales of channels are folded; later passes see the convolution that is computed
pointwise-products [blocks]: batch norms are folded into the weights, which are reshaped here
absorb-transposes: packed weights cannot be transposed, but a product can read them as they are
rotate: biases are single constants at this point, and passes that scale channels follow
rotate-online [floats]: at this point products have the operands that will be quantized
smooth [floats]: scales down the outlier channels that rotations have left
equalize [static]: scales the channels that smooth has left, where convolutions or ReLU lie between
split-slopes [static early]: runs before decline-ops: it makes what the device has of what it has
    not
decline-ops [static early]: ops have the form that the device gets; those that it cannot compute get
    no edges
mark-edges [static early]: runs last: every tensor that it marks is observed, and will be quantized
mark-residuals [static later maps stored-sums floats]: runs last, for the same reason as mark-edges:
    these tensors are observed, and will be quantized

# qdq
gptaq: runs first: it runs the program of the float level on the calibration data
gptq: likewise; it chooses the codes of weights that no pass has chosen
clip: clips the weights that gptq does not round: embeddings, weights in loops
learn [floats]: the integers of all weights are chosen; it moves them, for as long as `minutes`
    says
bias-correction: the integers of all weights are chosen; it measures their error
place-float-types: ops that stay float get their type before other passes move values around them
quantize-cache: reading a cache becomes a dequantize, which later passes move to its place
place-edges [static]: marked tensors are quantized before the operands of products
place-weights: every later pass works on low-bit data
place-activations: finds operands by the name of their op, before other passes move them
sink-dequantize: brings each dequantize next to the op that computes
fit-biases [integer-only]: scales of weights and of activations are known
carry-codes [static]: loops and branches carry quantized values, so that hoist-quantize can pass
    them
hoist-quantize: runs last: all quantize and dequantize ops are in place

# integer
place-float-types stored=true [floats]: all dequantize ops are in place; the next passes would take
    their products for those of float32
fold-quantize: a dequantize and the quantize after it become one step for the following passes
lower-regions [static early]: everything between a dequantize and a quantize becomes integer
    arithmetic
requantize [floats]: a convolution with quantized operands and result is one step; runs before
    lower-contractions, which would split it
lower-contractions [floats]: all other contractions multiply the quantized values themselves
verify-integer [integer-only]: proves that there is no float op between the first quantize and the
    last dequantize

# target
widen-sums: runs first: kernels take products of 16-bit floats that are summed in float32
unroll-loops stacks=true [floats]: kernels take weights that are constants, and each layer of a scan
    then has its own
kernel-integer-attention [floats]: runs before single products are taken: the probabilities stay in
    the caches
kernel-blocks [floats]: takes products whose weights have blocks or less than 8 bits; the next
    passes take the others
kernel-activations [integer-only]: runs before products with weights are taken, which say why others
    have no kernel
kernel-gemm: int8 matrix products become kernels
kernel-convolution: int8 convolutions become kernels
kernel-floats [floats]: float products with constant weights become kernels as those of int8 do
kernel-attention [floats]: float attention becomes one kernel: scores and probabilities stay in the
    caches
kernel-normalize [floats]: a normalization and the quantize of its result become one kernel
kernel-ranges [floats]: values quantized with ranges found at run time are marked for the next pass
kernel-quantize: quantizing the operand of a product becomes one kernel, which reads it once
kernel-views: all kernels are chosen: values are stored as signed or unsigned bytes, as their
    readers need them
kernel-halves [floats]: all products are kernels: what they read is rounded where it is computed
kernel-merge [floats]: products of the same operand become one, after its signed or unsigned form
    and its readers are known
kernel-rows [floats]: runs after products are merged: rows are normalized or quantized in the kernel
    of their product
kernel-hidden-rows [floats]: runs after kernels are merged: rows of padding are left out
kernel-updates [floats]: caches have the type that they are stored in: rows of them are written by a
    kernel, without waiting on the host for where
kernel-chain [floats]: runs after all kernels over rows are chosen: what is done to the rows of a
    token is less than a dispatch for each step
kernel-frames: the kernel that computes an image stores it with its padding
kernel-pairs: runs after the forms of products are fixed: it replaces kernels by faster ones with
    the same bits
kernel-decode [floats]: products of quantized weights and float activations dequantize in registers
patch-convolutions [floats]: rewrites float convolutions without a kernel
lower-markers: markers without a kernel become plain arithmetic
kernel-integer-rows [integer-only]: all other kernels are chosen: what is between them is whole
unroll-rounds plain-nibbles keep-blocks multiply-outer widen-depthwise widen-convolutions
shield-unsigned order-broadcasts plain-windows plain-transforms
plain-select-and-scatter: makes a scatter, which the next pass rewrites
plain-scatters
gather-slices: makes gathers, which clamp-indices reads
clamp-indices: kernels and loops have moved some indices away from their clamp
plain-powers plain-arctangents
plain-functions: powers bring some of them
stable-sorts
round-to-bfloat16: runs after all passes that may convert to bfloat16
round-to-exponents convert-by-float32
plain-unsigned: runs after the passes that distinguish unsigned integers
shield-splats shield-carries shield-starts shield-reversals shield-slices shield-reads
plain-booleans shield-filters shield-pads shield-strides shield-updates shield-equal
shield-reductions
"""


def _read(table: str) -> dict[Level, tuple[Step, ...]]:
    order: dict[Level, tuple[Step, ...]] = {}
    for part in re.split(r"^# ", table, flags=re.MULTILINE)[1:]:
        level, *lines = re.sub(r"\n +", " ", part).split("\n")
        order[LEVELS[LEVELS.index(level)]] = tuple(step for line in lines for step in _steps(line))
    return order


def _steps(line: str) -> Iterator[Step]:
    told = re.fullmatch(r"([\w-]+)((?: \w+=true)*)(?: \[(.*?)\])?: (.*)", line)
    if told is None:
        yield from map(Step, line.split())
        return
    name, options, when, why = told.groups("")
    conditions = [CONDITIONS[word] for word in when.split()]
    given = dict.fromkeys(re.findall(r"(\w+)=", options), True)
    yield Step(name, why, reduce(When.__and__, conditions) if conditions else ALWAYS, given)


ORDER = _read(TABLE)


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
