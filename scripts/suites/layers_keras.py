"""Layers of Keras 3 on JAX."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

from suites.layers import NO_LAYER, Table, classes
from suites.program import Case, numbers

_DATA = "prepares data, not the model's numbers"
_STRINGS = "of strings"
X, ROWS, IMAGE, VOLUME = (3, 7), (3, 5, 7), (2, 9, 7, 5), (2, 5, 6, 7, 3)
_SPATIAL = {1: (3, 9, 5), 2: IMAGE, 3: VOLUME}


def _case(name: str, make: Callable[[], Any], *inputs: Any, **call: Any) -> Case:
    """`inputs` are the arguments of the layer; a list is one argument."""
    keras.utils.set_random_seed(0)
    layer = make()
    layer(*inputs, **call)
    weights = (
        {f"{i}/{v.path}": np.asarray(v) for i, v in enumerate(layer.trainable_variables)},
        {f"{i}/{v.path}": np.asarray(v) for i, v in enumerate(layer.non_trainable_variables)},
    )

    def fn(held: Any, *args: Any) -> Any:
        kept = [list(part.values()) for part in held]
        return layer.stateless_call(*kept, *args, **call)[0]

    return Case("keras", name, fn, inputs, weights, sums=True, layer=True)


def _ranked() -> dict[str, tuple[Callable[[], Any], tuple[Any, ...]]]:
    """Layers that exist for one, two and three axes of space."""
    made: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {}
    for rank, shape in _SPATIAL.items():
        x = numbers(*shape)
        options: dict[str, tuple[Any, ...]] = {
            "AdaptiveAveragePooling": (3 if rank == 1 else (3,) * rank,),
            "AdaptiveMaxPooling": (3 if rank == 1 else (3,) * rank,),
            "AveragePooling": (2,),
            "Conv": (4, 3),
            "Cropping": (1,),
            "GlobalAveragePooling": (),
            "GlobalMaxPooling": (),
            "MaxPooling": (2,),
            "SpatialDropout": (0.5,),
            "UpSampling": (2,),
            "ZeroPadding": (1,),
        }
        for kind, arguments in options.items():
            name = f"{kind}{rank}D"
            made[name] = (lambda n=name, a=arguments: getattr(layers, n)(*a)), (x,)
        name = f"Conv{rank}DTranspose"
        made[name] = (lambda n=name: getattr(layers, n)(4, 3, strides=2)), (x,)
        made[f"Conv{rank}D same"] = (
            lambda n=f"Conv{rank}D": getattr(layers, n)(4, 3, strides=2, padding="same"),
            (x,),
        )
        frames = numbers(2, 3, *shape[1:-1], 2) if rank < 3 else numbers(1, 2, 4, 5, 3, 2)
        made[f"ConvLSTM{rank}D"] = (
            lambda n=f"ConvLSTM{rank}D": getattr(layers, n)(3, 3, padding="same"),
            (frames,),
        )
        if rank < 3:
            for kind, arguments in (("DepthwiseConv", (3,)), ("SeparableConv", (4, 3))):
                name = f"{kind}{rank}D"
                made[name] = (lambda n=name, a=arguments: getattr(layers, n)(*a)), (x,)
    return made


def _others() -> dict[str, tuple[Callable[[], Any], tuple[Any, ...]]]:
    x, rows, image, ids = numbers(*X), numbers(*ROWS), numbers(*IMAGE), np.array([[1, 4, 0]])
    keys, states = numbers(3, 4, 7), [numbers(3, 5), numbers(3, 5)]
    pair = [x, x[::-1] * 2]
    unary: dict[str, tuple[Callable[[], Any], Any]] = {
        "Activation": (lambda: layers.Activation("tanh"), x),
        "ActivityRegularization": (lambda: layers.ActivityRegularization(0.1), x),
        "AlphaDropout": (lambda: layers.AlphaDropout(0.5), x),
        "BatchNormalization": (lambda: layers.BatchNormalization(), image),
        "Bidirectional": (lambda: layers.Bidirectional(layers.LSTM(5)), rows),
        "CategoryEncoding": (lambda: layers.CategoryEncoding(5, "one_hot"), ids),
        "CenterCrop": (lambda: layers.CenterCrop(4, 3), image),
        "Dense": (lambda: layers.Dense(5, activation="gelu"), rows),
        "Discretization": (lambda: layers.Discretization([-1.0, 0.0, 1.0]), x),
        "Dropout": (lambda: layers.Dropout(0.5), x),
        "ELU": (lambda: layers.ELU(), x),
        "EinsumDense": (lambda: layers.EinsumDense("abc,cd->abd", (None, 4)), rows),
        "Embedding": (lambda: layers.Embedding(11, 7), ids),
        "Flatten": (lambda: layers.Flatten(), image),
        "GRU": (lambda: layers.GRU(5, return_sequences=True), rows),
        "GaussianDropout": (lambda: layers.GaussianDropout(0.5), x),
        "GaussianNoise": (lambda: layers.GaussianNoise(0.5), x),
        "GroupNormalization": (lambda: layers.GroupNormalization(3), numbers(2, 9, 7, 6)),
        "Identity": (lambda: layers.Identity(), x),
        "LSTM": (lambda: layers.LSTM(5), rows),
        "Lambda": (lambda: layers.Lambda(keras.ops.sin), x),
        "LayerNormalization": (lambda: layers.LayerNormalization(), rows),
        "LeakyReLU": (lambda: layers.LeakyReLU(), x),
        "Masking": (lambda: layers.Masking(), rows),
        "MelSpectrogram": (
            lambda: layers.MelSpectrogram(fft_length=64, sequence_stride=16, num_mel_bins=5),
            numbers(2, 200),
        ),
        "Normalization": (lambda: layers.Normalization(mean=0.3, variance=2.0), x),
        "PReLU": (lambda: layers.PReLU(), x),
        "Permute": (lambda: layers.Permute((2, 1)), rows),
        "Pipeline": (lambda: layers.Pipeline([layers.Rescaling(2.0)]), x),
        "RMSNormalization": (lambda: layers.RMSNormalization(), rows),
        "RNN": (lambda: layers.RNN(layers.GRUCell(5)), rows),
        "ReLU": (lambda: layers.ReLU(6.0), x),
        "RepeatVector": (lambda: layers.RepeatVector(3), x),
        "Rescaling": (lambda: layers.Rescaling(0.5, 1.0), x),
        "Reshape": (lambda: layers.Reshape((7, 5)), rows),
        "Resizing": (lambda: layers.Resizing(5, 11), image),
        "ReversibleEmbedding": (lambda: layers.ReversibleEmbedding(11, 7), ids),
        "STFTSpectrogram": (
            lambda: layers.STFTSpectrogram(frame_length=32, frame_step=16, fft_length=32),
            numbers(2, 100, 1),
        ),
        "SimpleRNN": (lambda: layers.SimpleRNN(5), rows),
        "Softmax": (lambda: layers.Softmax(), x),
        "SpectralNormalization": (lambda: layers.SpectralNormalization(layers.Dense(5)), x),
        "StackedRNNCells": (
            lambda: layers.RNN(layers.StackedRNNCells([layers.GRUCell(5), layers.GRUCell(4)])),
            rows,
        ),
        "TimeDistributed": (lambda: layers.TimeDistributed(layers.Dense(4)), rows),
        "UnitNormalization": (lambda: layers.UnitNormalization(), x),
    }
    made: dict[str, Any] = {name: (make, (arg,)) for name, (make, arg) in unary.items()}
    for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"):
        made[name] = (lambda n=name: getattr(layers, n)()), (pair,)
    made["Dot"] = (lambda: layers.Dot(1)), (pair,)
    made["Attention"] = (lambda: layers.Attention()), ([rows, keys],)
    made["AdditiveAttention"] = (lambda: layers.AdditiveAttention()), ([rows, keys],)
    made["MultiHeadAttention"] = (lambda: layers.MultiHeadAttention(3, 5)), (rows, keys)
    made["GroupQueryAttention"] = (lambda: layers.GroupQueryAttention(5, 4, 2)), (rows, keys)
    made["GRUCell"] = (lambda: layers.GRUCell(5)), (x, states[:1])
    made["SimpleRNNCell"] = (lambda: layers.SimpleRNNCell(5)), (x, states[:1])
    made["LSTMCell"] = (lambda: layers.LSTMCell(5)), (x, states)
    return made


def _left_out(public: list[str], cases: set[str]) -> dict[str, str]:
    """Names that are no case: second names of classes, and what makes or mangles data."""
    reasons = dict.fromkeys(
        (
            *("AugMix", "AutoContrast", "CutMix", "Equalization", "MixUp", "RandAugment"),
            *("ContrastLimitedAdaptiveHistogramEqualization", "MaxNumBoundingBoxes"),
            *("Solarization", *(name for name in public if name.startswith("Random"))),
        ),
        _DATA,
    )
    reasons |= dict.fromkeys(
        ("HashedCrossing", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"),
        _STRINGS,
    )
    reasons |= dict.fromkeys(("InputLayer", "Layer", "Wrapper"), NO_LAYER)
    reasons |= dict.fromkeys(
        ("FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper"), "wraps another framework"
    )
    for name in public:
        own = getattr(layers, name).__name__
        if own != name and own in cases:
            reasons[name] = f"another name of {own}"
    return reasons


def _table() -> Table:
    public = classes(layers, layers.Layer)
    cases = _ranked() | _others()
    made = {n: lambda n=n, m=m, x=x: _case(n, m, *x) for n, (m, x) in cases.items()}
    return Table(made, _left_out(public, {name.split()[0] for name in made}), public)


TABLE = _table()
