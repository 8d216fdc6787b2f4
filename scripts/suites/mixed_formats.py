"""Drawn networks in which rules give ops that read one value formats of their own.

A network is right where every op of its integer level has the same values by the interpreter, XLA
and NumPy (`suites.differential.networks`), that level ends within a share of the noise that
quantizing adds beside the `qdq` level, and IREE ends within that of the interpreter; or where it is
refused by a `UserError` that names one of its ops.

An integer-only program is held against `qdq` as it rescales with one rounding. A rescale with two
(TFLite's) gives the neighbouring code where a quotient is within 2^-(s + 1) of a tie, s its right
shift: in seed 15, 2 of 288 codes of the first convolution, next to ties by 0.0004 and 0.003, which
exact fractions decide as one rounding does. Such a code is a whole step off, and a convolution
hands it on to all around it: how many there are follows from the data, so that no share of the
noise holds for them. `op_by_op` holds them to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.base.errors import UserError
from jq.ir.oracle.interpreter import interpret
from jq.target.rules import parse_rule
from jq.target.target import Target, load_target
from suites.differential.networks import SETTINGS, near, op_by_op
from suites.outcome import DID_NOT_RUN, FAILED, REFUSED, RIGHT, WRONG, Outcome

Array = Any
BATCH, SIZE, WIDTH = 1, 6, 8
INTEGER_ONLY = "int8-static-integer-only"
PIPELINES = (
    *("int8-static", "int8-dynamic", "int8x16-static", "int4-dynamic", "int8-weight-only"),
    *("mxint8", INTEGER_ONLY),
)
WIDE = "activations.format=int16, activations.granularity=per-tensor, activations.scheme=symmetric"
STATIC = "activations.mode=static, activations.granularity=per-tensor"
DYNAMIC = "activations.mode=dynamic"
OVERRIDES = (
    "float",
    "float16",
    "bfloat16",
    "activations.format=float",
    "activations.format=int16",
    f"{WIDE}, activations.mode=static",
    f"{WIDE}, activations.mode=dynamic",
    f"activations.format=int8, {STATIC}",
    f"activations.format=int8, {STATIC}, activations.scheme=symmetric",
    f"activations.format=int8, {DYNAMIC}, activations.granularity=per-token",
    f"activations.format=int8, {DYNAMIC}, activations.granularity=per-tensor",
    f"activations.format=int8, {DYNAMIC}, activations.granularity=per-block, "
    "activations.block_size=4, activations.scheme=symmetric",
    f"activations.format=uint8, {STATIC}",
    f"activations.format=uint8, {DYNAMIC}",
    f"activations.format=int4, {STATIC}",
    "weights.format=int4, weights.granularity=per-channel",
    "weights.format=int4, weights.granularity=per-block, weights.block_size=4",
    "weights.format=uint8, weights.scheme=asymmetric",
    "weights.format=int16",
    "weights.granularity=per-tensor",
    "weights.format=mxint8, weights.granularity=per-block",
    "format=mxint8",
    "format=float8_e4m3fn",
    "activation_products=int8",
    "activation_products=float",
)


@dataclass(frozen=True)
class Step:
    """One op of a network.

    Attributes:
        reads: numbers of the values that it reads, the input being 0.
        weight: shape of its weight, under the name `<kind><number>/kernel`; None without one.
    """

    kind: str
    reads: tuple[int, ...]
    weight: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Drawn:
    """A network of feature maps `[1, 6, 6, 8]`; the last values that nothing reads are added up."""

    steps: tuple[Step, ...]
    params: dict[str, np.ndarray]
    pipeline: str
    rules: tuple[str, ...]
    settings: dict[str, Any]
    samples: list[np.ndarray] = field(repr=False)

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        values = [x]
        for i, step in enumerate(self.steps):
            weight = params[name(step, i)] if step.weight else None
            values.append(KINDS[step.kind](weight, *(values[k] for k in step.reads)))
        read = {k for step in self.steps for k in step.reads}
        return sum(v for k, v in enumerate(values) if k not in read)

    def model(self) -> jq.Model:
        samples = [(x,) for x in self.samples]
        return jq.Model(self.__call__, self.params, samples[0], calibration=samples)

    def __str__(self) -> str:
        steps = (f"{s.kind}{i}{list(s.reads)}" for i, s in enumerate(self.steps))
        return f"{self.pipeline} {self.settings} | {' '.join(steps)} | {'; '.join(self.rules)}"


def name(step: Step, number: int) -> str:
    return f"{step.kind}{number}/kernel"


def _convolved(x: Array, w: Array, groups: int = 1) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def _attended(w: Array, x: Array, y: Array) -> Array:
    """Positions of one map by those of another: products of two activations."""
    a, b = (v.reshape(v.shape[0], -1, WIDTH) for v in (x, y))
    share = jax.nn.softmax(a @ b.swapaxes(1, 2) / np.sqrt(WIDTH), -1)
    return (share @ b).reshape(x.shape)


def _pooled(w: Array, x: Array) -> Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")


def _gated(w: Array, x: Array) -> Array:
    return x * jax.nn.sigmoid(jnp.mean(x, (1, 2), keepdims=True))


def _normal(w: Array, x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


KINDS: dict[str, Any] = {
    "conv": lambda w, x: _convolved(x, w),
    "relu_conv": lambda w, x: jax.nn.relu(_convolved(x, w) + 0.25),
    "depthwise": lambda w, x: _convolved(x, w, WIDTH),
    "dense": lambda w, x: x @ w,
    "add": lambda w, x, y: x + y,
    "relu_add": lambda w, x, y: jax.nn.relu(x + y),
    "multiply": lambda w, x, y: x * y,
    "concatenate": lambda w, x, y: jnp.concatenate([x[..., : WIDTH // 2], y[..., WIDTH // 2 :]], 3),
    "maximum": lambda w, x, y: jnp.maximum(x, y),
    "attention": _attended,
    "relu": lambda w, x: jax.nn.relu(x),
    "clip": lambda w, x: jnp.clip(x, -1.0, 1.5),
    "tanh": lambda w, x: jnp.tanh(x),
    "norm": _normal,
    "pool": _pooled,
    "gate": _gated,
    "flip": lambda w, x: x[:, ::-1],
}
WEIGHTS = {
    **dict.fromkeys(("conv", "relu_conv"), ((3, 3, WIDTH, WIDTH), (1, 1, WIDTH, WIDTH))),
    "depthwise": ((3, 3, 1, WIDTH),),
    "dense": ((WIDTH, WIDTH),),
}
TWO = ("add", "relu_add", "multiply", "concatenate", "maximum", "attention")
ONE = ("relu", "clip", "tanh", "norm", "pool", "gate", "flip")


def drawn(seed: int) -> Drawn:
    """4 to 9 ops; half of what they read was read before, so that most values have many readers."""
    rng = np.random.default_rng((44, seed))
    steps: list[Step] = []
    params: dict[str, np.ndarray] = {}
    for i in range(int(rng.integers(4, 10))):
        kinds = tuple(WEIGHTS) if i == 0 or rng.random() < 0.55 else (TWO, ONE)[rng.random() < 0.35]
        kind = str(rng.choice(kinds))
        reads = _reads(rng, i + 1, 2 if kind in TWO else 1)
        shapes = WEIGHTS.get(kind)
        step = Step(kind, reads, shapes[rng.integers(len(shapes))] if shapes else None)
        steps.append(step)
        if step.weight:
            size = float(np.prod(step.weight[:-1])) ** -0.5
            params[name(step, i)] = (rng.standard_normal(step.weight) * size).astype(np.float32)
    patterns = [f"{s.kind}{i}/*" for i, s in enumerate(steps) if s.weight]
    patterns = [p for p in patterns if rng.random() < 0.6] or patterns[:1]
    if any(s.kind == "attention" for s in steps) and rng.random() < 0.5:
        patterns.append("dot_general")
    rules = tuple(f"{p}: {rng.choice(OVERRIDES)}" for p in patterns)
    settings: dict[str, Any] = dict(SETTINGS)
    if rng.random() < 0.25:
        settings["convolution_sums"] = "float"
    if rng.random() < 0.25:
        settings["placement"] = str(rng.choice(["late", "hybrid"]))
    shape = (BATCH, SIZE, SIZE, WIDTH)
    samples = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    pipeline = str(rng.choice(PIPELINES))
    if pipeline in (INTEGER_ONLY, "int8-weight-only"):  # which refuse it, whatever the network
        settings.pop("placement", None)
    return Drawn(tuple(steps), params, pipeline, rules, settings, samples)


def _reads(rng: np.random.Generator, known: int, count: int) -> tuple[int, ...]:
    """Numbers of values among the first `known`, the last more often than others."""
    first = known - 1 if rng.random() < 0.5 else int(rng.integers(known))
    return (first, *(int(rng.integers(known)) for _ in range(count - 1)))


@dataclass(frozen=True)
class Case:
    seed: int
    iree: bool = False


def identify(case: Case) -> tuple[str, str]:
    return "mixed formats", str(case.seed)


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case."""
    (case,) = cases
    network = drawn(case.seed)
    given = {"pipeline": network.pipeline, "settings": network.settings, "rules": network.rules}
    layers = [f"{s.kind}{i}" for i, s in enumerate(network.steps)]
    return [outcome(identify(case), network.model(), given, layers, case.iree)]


def outcome(
    name: tuple[str, str], model: jq.Model, given: dict[str, Any], layers: Sequence[str], iree: bool
) -> Outcome:
    """Refused is only what names one of the layers, or the op (a sum between layers is `add`)."""
    logging.disable(logging.WARNING)
    given = given | {"rules": [parse_rule(rule) for rule in given["rules"]]}
    try:
        said = wrong(model, given, iree)
        return Outcome(*name, WRONG if said else RIGHT, said)
    except Exception as error:
        said = str(error).partition("\n")[0][:300]
        refused = isinstance(error, UserError) and (
            error.op is not None or any(layer in said for layer in layers)
        )
        return Outcome(*name, REFUSED if refused and DID_NOT_RUN not in said else FAILED, said)


def wrong(model: jq.Model, given: dict[str, Any], iree: bool) -> str:
    """The difference; empty if there is none."""
    (x,) = model.example_inputs
    levels = jq.rewrite(model, **given)
    if said := next(op_by_op(levels["integer"], x), ""):
        return said
    exact = np.asarray(jax.jit(model.fn)(model.params, x))
    integer_only = given["pipeline"] == INTEGER_ONLY
    once = jq.rewrite(model, **given | {"target": _once()}) if integer_only else levels
    (rounded,), (qdq,) = interpret(once["integer"], x), interpret(levels["qdq"], x)
    if said := near(rounded, qdq, exact):
        return f"qdq: {said}"
    (integer,) = interpret(levels["integer"], x)
    if not iree:
        return ""
    compiled = jq.compile(model, cache=False, **given)
    said = near(np.asarray(compiled(x)), integer, exact)
    return f"IREE: {said}" if said else ""


def _once() -> Target:
    """The default target, with rescales that round once."""
    target = load_target("llvm-cpu")
    device = target.device.model_copy(update={"rounding": "single"})
    return target.model_copy(update={"device": device})
