"""Layers that Keras and AQT have quantized: their codes are kept, and their results are found.

Keras' GPTQ is left out: it wants a tokenizer and text. Its words are in tests/passes/test_arriving.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.formats import NUMPY, get_format
from jq.ir.encodings import encoding_in
from tests.support.programs import evaluated

os.environ["KERAS_BACKEND"] = "jax"

X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((4, 8, 64)).astype(np.float32)
TOKENS = np.arange(20, dtype=np.int32).reshape(4, 5)


def kept(program: Any, name: str) -> np.ndarray:
    """The codes that are stored of a weight, as int8."""
    entry = program.encodings[name]
    enc = encoding_in(entry)
    parts = {k: program.weights[f"{name}:{k}"] for k in entry["parts"]}
    return np.asarray(get_format(enc.format).codes(NUMPY, parts, enc)).astype(np.int8)


def same_results(model: jq.Model, x: np.ndarray, want: np.ndarray) -> dict[str, Any]:
    """The levels of a model that computes what it did."""
    levels = jq.rewrite(model, pipeline="float", settings={"strict_encodings": True})
    (got,) = evaluated(levels["integer"], x)
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()
    return levels


def keras_layers(kind: str) -> tuple[Any, np.ndarray]:
    keras = pytest.importorskip("keras")
    layers = keras.layers
    keras.utils.set_random_seed(0)
    made = {
        "dense": ((64,), [layers.Dense(48, activation="relu"), layers.Dense(16)], X),
        "einsum": (
            (8, 64),
            [
                layers.EinsumDense("abc,cde->abde", (None, 4, 16), bias_axes="de"),
                layers.EinsumDense("abde,def->abf", (None, 32)),
            ],
            ROWS,
        ),
        "embedding": ((5,), [layers.Embedding(30, 64), layers.Dense(16)], TOKENS),
    }
    shape, stack, x = made[kind]
    start = layers.Input(shape, dtype="int32" if kind == "embedding" else "float32")
    return keras.Sequential([start, *stack]), x


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`:UserWarning")
@pytest.mark.filterwarnings("ignore:Invalid quantization mode:UserWarning")  # lookups in float8
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in Keras
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
@pytest.mark.parametrize("kind", ["dense", "einsum", "embedding"])
def test_keras(kind: str, mode: str) -> None:
    module, x = keras_layers(kind)
    module.quantize(mode)
    model = jq.from_keras(module, (x,))
    levels = same_results(model, x, np.asarray(module(x)))
    encodings = levels["qdq"].encodings
    assert {e["format"] for e in encodings.values()} == {mode.replace("float8", "float8_e4m3fn")}
    kernels = [name for name in encodings if name.endswith("kernel")]
    assert len(kernels) == (1 if kind == "embedding" else 2)
    for name in kernels if mode != "float8" else ():
        theirs = np.asarray(model.params[name])
        codes = kept(levels["qdq"], name)
        if mode == "int4":  # two in a byte, along the summed axis
            theirs = theirs.reshape(-1).view(np.uint8)
            low, high = (((theirs >> shift & 15) ^ 8).astype(np.int8) - 8 for shift in (0, 4))
            assert np.array_equal(
                np.bincount(codes.reshape(-1) + 8, minlength=16), _counts(low, high)
            )
        else:
            assert np.array_equal(codes.reshape(-1), theirs.reshape(-1))
    if mode == "int8":
        rows = [op for op in jq.explain(model, pipeline="float")["ops"] if op["op"] != "gather"]
        assert all(op["decision"] == "integer" and op["kernel"] for op in rows)


def _counts(*codes: np.ndarray) -> np.ndarray:
    return np.bincount(np.concatenate(codes) + 8, minlength=16)


# Bits of activations and weights; AQT's weights are frozen as it serves them.
AQT = [(8, 8), (None, 8), (8, 4), (4, 4), (None, 4)]


@pytest.mark.parametrize(("activations", "weights"), AQT)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_aqt(activations: int | None, weights: int) -> None:
    pytest.importorskip("aqt")
    import flax.linen as nn
    from aqt.jax.v2 import config, utils
    from aqt.jax.v2.flax import aqt_flax

    class Net(nn.Module):
        mode: Any

        @nn.compact
        def __call__(self, x: Any) -> Any:
            def product() -> Any:
                return aqt_flax.AqtDotGeneral(
                    config.dot_general_make(activations, weights),
                    rhs_quant_mode=self.mode,
                    rhs_freeze_mode=aqt_flax.FreezerMode.CALIBRATION_AND_VALUE,
                )

            x = nn.relu(nn.Dense(48, dot_general_cls=product)(x))
            return nn.Dense(16, dot_general_cls=product)(x)

    rngs = {"params": jax.random.key(0)}
    start = Net(utils.QuantMode.TRAIN).init(jax.random.key(0), X)
    _, frozen = Net(utils.QuantMode.CONVERT).apply(start, X, mutable=True, rngs=rngs)
    serve = Net(utils.QuantMode.SERVE)
    model = jq.Model(lambda v, x: serve.apply(v, x, rngs=rngs), frozen, (X,))
    want = np.asarray(jax.jit(serve.apply)(frozen, X, rngs=rngs))
    levels = same_results(model, X, want)
    stored = levels["qdq"].encodings
    assert len(stored) == 2 and {e["format"] for e in stored.values()} == {f"int{weights}"}
    leaves = {a.size: np.asarray(a) for a in jax.tree.leaves(frozen["aqt"]) if a.size >= 768}
    for name in stored:
        codes = kept(levels["qdq"], name)
        theirs = leaves[codes.size].astype(np.int8).reshape(-1)
        assert np.array_equal(np.sort(codes.reshape(-1)), np.sort(theirs))
