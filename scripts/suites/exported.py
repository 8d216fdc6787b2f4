"""Drawn integer-only networks in every form that `jaxq export` writes: the same bits, or refused.

A network has a few layers of convolutions, residual sums, pools, joins, tables and moves, and ends
in a dense layer. The form's own reference runs what was written (`jq.export(verify=True)`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.device.exporting import PIPELINE
from jq.device.forms import verifying
from jq.ir import Program
from jq.ir.oracle import xla
from jq.ir.oracle.interpreter import interpret
from jq.target.target import Target, load_target

Array = Any
Params = dict[str, Any]
# Suffixes, targets that compute as one of the form's references does, and formats of activations.
FORMS = (
    (".tosa", "npu-int8", "int8"),
    (".tflite", "litert-reference", "int8"),
    (".tflite", "litert", "int8"),
    (".onnx", "onnx-qdq", "int8"),
    (".tosa", "npu-16x8", "int16"),
    (".tflite", "litert-reference", "int16"),
)
SETTINGS = {"recovery": False}  # which bits it is, no longer how good they are
NHWC = ("NHWC", "HWIO", "NHWC")
ACTIVATIONS: tuple[Callable[[Array], Array], ...] = (
    lambda x: x,
    jax.nn.relu,
    lambda x: jnp.clip(x, 0, 1),
    lambda x: jax.nn.leaky_relu(x, 0.1),
    jnp.tanh,
    jax.nn.sigmoid,
    jax.nn.hard_swish,
)
Layer = Callable[[Params, Array], Array]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one network in one form."""

    seed: int
    suffix: str
    target: str
    codes: str
    outputs: int = 0
    same: int = 0
    refused: str = ""
    failed: str = ""

    @property
    def wrong(self) -> bool:
        return not self.refused and (self.same != self.outputs or not self.outputs)


class Drawn:
    """A network of layers that are drawn one after the other, for the shape that is there."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.params: Params = {}
        self.layers: list[Layer] = []
        height, width, channels = (int(v) for v in self.rng.integers((4, 4, 1), (11, 11, 5)))
        self.shape: tuple[int, ...] = (1, height, width, channels)
        self.input = self.shape
        kinds = (self.conv, self.depthwise, self.residual, self.join, self.pool, self.function)
        for _ in range(int(self.rng.integers(2, 6))):
            draw = (*kinds, self.mean, self.move, self.upsampled, self.padded)[
                self.rng.integers(10)
            ]
            self.add(draw())
        self.add(self.dense())

    def add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.shape = jax.eval_shape(
            layer, self.params, jax.ShapeDtypeStruct(self.shape, "f4")
        ).shape

    def __call__(self, params: Params, x: Array) -> Array:
        for layer in self.layers:
            x = layer(params, x)
        return x

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.params)}"
        rows = max(1, int(np.prod(shape[:-1])))
        self.params[name] = self.rng.standard_normal(shape, np.float32) / rows**0.5
        return name

    def one(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def conv(self, features: int = 0, stride: int = 0) -> Layer:
        k, n = self.one(1, 2, 3), features or int(self.rng.integers(1, 9))
        by = stride or self.one(1, 1, 2)
        w, b, f = self.weight(k, k, self.shape[3], n), self.weight(n), self.one(*ACTIVATIONS)
        padding = "SAME" if stride or min(self.shape[1:3]) < 4 else self.one("SAME", "VALID")
        return lambda p, x: f(_conv(x, p[w], by, padding) + p[b])

    def depthwise(self) -> Layer:
        k, c, many = self.one(2, 3), self.shape[3], self.one(1, 1, 2)
        w, f, dilation = self.weight(k, k, 1, c * many), self.one(*ACTIVATIONS), self.one(1, 2)
        return lambda p, x: f(
            _conv(x, p[w], 1, "SAME", feature_group_count=c, rhs_dilation=(dilation, dilation))
        )

    def residual(self) -> Layer:
        inner, f = self.conv(self.shape[3], 1), self.one(*ACTIVATIONS)
        if self.one(True, False):
            return lambda p, x: f(x + inner(p, x))
        return lambda p, x: f(inner(p, x) - x)

    def join(self) -> Layer:
        inner = self.conv(0, 1)
        return lambda p, x: jnp.concatenate([x, inner(p, x)], 3)

    def pool(self) -> Layer:
        k, by, largest = self.one(2, 3), self.one(1, 2), self.one(True, False)
        window, strides = (1, k, k, 1), (1, by, by, 1)
        if largest:
            return lambda p, x: jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, window, strides, "SAME"
            )
        return lambda p, x: (
            jax.lax.reduce_window(x, 0.0, jax.lax.add, window, strides, "SAME") / k**2
        )

    def function(self) -> Layer:
        f = self.one(*ACTIVATIONS[3:])
        return lambda p, x: f(x)

    def mean(self) -> Layer:
        axis = self.one(1, 2)
        return lambda p, x: x.mean(axis, keepdims=True) + 0 * x[:, :1, :1]

    def move(self) -> Layer:
        return self.one(
            lambda p, x: x.swapaxes(1, 2),
            lambda p, x: x[:, :-1, 1:] if min(x.shape[1:3]) > 2 else x,
            lambda p, x: x[:, ::-1],
        )

    def upsampled(self) -> Layer:
        if max(self.shape[1:3]) > 12:
            return self.move()
        if self.one(True, False):
            return lambda p, x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        w = self.weight(3, 3, self.shape[3], int(self.rng.integers(1, 6)))
        return lambda p, x: jax.lax.conv_transpose(x, p[w], (2, 2), "SAME", dimension_numbers=NHWC)

    def padded(self) -> Layer:
        sides = tuple((int(a), int(b)) for a, b in self.rng.integers(0, 3, (2, 2)))
        return lambda p, x: jnp.pad(x, ((0, 0), *sides, (0, 0)))

    def dense(self) -> Layer:
        if self.one(True, False):
            w = self.weight(self.shape[3], 5)
            return lambda p, x: x.mean((1, 2)) @ p[w]
        w = self.weight(int(np.prod(self.shape)), 5)
        return lambda p, x: x.reshape(1, -1) @ p[w]


def _conv(x: Array, w: Array, stride: int, padding: str, **others: Any) -> Array:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=NHWC, **others
    )


def model(seed: int) -> jq.Model:
    """A drawn network with its calibration data."""
    drawn = Drawn(seed)
    samples = [(drawn.rng.standard_normal(drawn.input, np.float32),) for _ in range(3)]
    return jq.Model(drawn, drawn.params, samples[0], calibration=samples)


def outcomes(seed: int) -> Iterator[Outcome]:
    """A network in all forms."""
    drawn = model(seed)
    # Ranges are of the float network, the same for all: calibration is most of the time.
    ranges = jq.calibrate(drawn, pipeline=PIPELINE, target=FORMS[0][1], settings=SETTINGS)
    for form in FORMS:
        suffix, target, codes = form
        settings = SETTINGS | ({} if codes == "int8" else {"activations.format": codes})
        where = wide(target) if target == "npu-16x8" else target
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"m{suffix}"
            try:
                found = jq.export(
                    drawn, path, target=where, verify=True, settings=settings, ranges=ranges
                )
            except jq.UserError as error:
                yield Outcome(seed, *form, refused=str(error))
            except Exception as error:  # of a reference, which takes no such file
                yield Outcome(seed, *form, failed=f"{type(error).__name__}: {error}")
            else:
                yield Outcome(seed, *form, found["outputs"], found["same"])


def wide(name: str) -> Target:
    """The target of 8 bits with products of codes of 16 bits, whose zero points are 0."""
    found = load_target("npu-int8")
    products = (*found.device.products, "int16 x int8")
    changed = {"products": products, "zero_points": {"int16": "zero"}}
    return found.model_copy(
        update={"name": name, "device": found.device.model_copy(update=changed)}
    )


class Interpreted:
    """A program by StableHLO's interpreter, which is done before XLA has compiled it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def bind(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.program = replace(self.program, weights={**self.program.weights, **arrays})

    def __call__(self, *inputs: Array) -> list[np.ndarray]:
        return interpret(self.program, *inputs)


def quickly() -> None:
    """XLA runs in this process, and compiles without optimizing: integers are the same; those of
    the integer program are the interpreter's."""
    os.environ["JAXQ_XLA"] = "here"
    xla._OPTIONS["xla_backend_optimization_level"] = "0"
    verifying.XlaExecutable = Interpreted  # type: ignore[assignment, misc]
