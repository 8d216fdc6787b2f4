"""Layers of a convolutional network, and two ways to go through one.

A network is written once, as a function of a `Net`, and run by two of them: `Apply` computes it in
JAX with given parameters; `Initialise` walks through it in NumPy, draws every kernel and measures
every batch norm's statistics on the way. All tensors are NHWC, kernels HWIO."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from jq.base.system.threads import one_thread
from jq.frontends.model import Batch, Model
from jq.models._tree import nest, spec


# Random images with the structure of photographs.
def images(count: int, size: int, seed: int) -> np.ndarray:
    """f32[count, size, size, 3], each of mean 0 and variance 1 or less: two textures of different
    brightness and contrast that meet at a sharp, curved edge, with the spectrum of photographs,
    amplitude 1 / frequency (Field 1987), and colour channels that go together."""
    rng = np.random.default_rng((seed, size))
    shape = (count, size, size)
    first, second = (
        _fields(rng, (*shape, 1), power=1.0) + 0.4 * _fields(rng, (*shape, 3), power=1.0)
        for _ in range(2)
    )
    edge = _fields(rng, (*shape, 1), power=2.0) > 0
    contrast = rng.uniform(0.2, 1.0, (count, 1, 1, 1))
    mixed = np.where(edge, first, contrast * second + rng.normal(0, 1, (count, 1, 1, 3)))
    mixed -= mixed.mean(axis=(1, 2, 3), keepdims=True)
    mixed /= np.maximum(mixed.std(axis=(1, 2, 3), keepdims=True), 1.0)
    return mixed.astype(np.float32)


def batches(count: int, batch: int, size: int, seed: int) -> Callable[[], list[Batch]]:
    """A function that returns `count` images, rounded up to whole batches."""
    total = -(-count // batch)

    def make() -> list[Batch]:
        return [(part,) for part in np.split(images(total * batch, size, seed), total)]

    return make


def _fields(rng: np.random.Generator, shape: tuple[int, ...], power: float) -> np.ndarray:
    """Gaussian fields over axes 1 and 2, amplitude f**-power, variance 1."""
    rows, columns = np.fft.fftfreq(shape[1]), np.fft.rfftfreq(shape[2])
    frequency = np.hypot(rows[:, None], columns)
    frequency[0, 0] = np.inf  # no constant part
    noise = np.fft.rfft2(rng.standard_normal(shape), axes=(1, 2))
    field = np.fft.irfft2(noise / frequency[..., None] ** power, s=shape[1:3], axes=(1, 2))
    return np.asarray(field / field.std(axis=(1, 2), keepdims=True))


EPSILON = 1e-5  # of the batch norms
Tensor = Any  # a JAX or a NumPy array


def convolved(x: Tensor, kernel: Tensor, stride: int, groups: int = 1) -> Tensor:
    """A convolution in JAX, with edges of half a kernel."""
    edge = (kernel.shape[0] // 2,) * 2
    how: Any = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": groups}
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), (edge, edge), **how)


class Apply:
    """JAX: float32 convolutions, norms as separate operations with their own parameters."""

    def __init__(self, params: Any) -> None:
        self.params = params

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        outer, self.params = self.params, self.params[name]
        with jax.named_scope(name):
            yield
        self.params = outer

    def conv(self, x: Tensor, features: int, size: int, stride: int = 1) -> Tensor:
        return convolved(x, self.params["kernel"], stride)

    def depthwise(self, x: Tensor, size: int, stride: int = 1) -> Tensor:
        return convolved(x, self.params["kernel"], stride, groups=x.shape[-1])

    def norm(self, x: Tensor, gain: float = 1.0) -> Tensor:
        p = self.params
        return (x - p["mean"]) * (p["gamma"] * jax.lax.rsqrt(p["var"] + EPSILON)) + p["beta"]

    def clip(self, x: Tensor, high: float = math.inf) -> Tensor:
        """ReLU, or one with an upper end."""
        positive = jnp.maximum(x, 0)
        return positive if math.isinf(high) else jnp.minimum(positive, high)

    def max_pool(self, x: Tensor) -> Tensor:
        """3x3, stride 2."""
        edges = ((0, 0), (1, 1), (1, 1), (0, 0))
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), edges)

    def classify(self, x: Tensor, classes: int) -> Tensor:
        """A dense layer of the mean over the image."""
        return x.mean(axis=(1, 2)) @ self.params["kernel"] + self.params["bias"]


class Initialise:
    """NumPy: the same layers; `flat` collects the parameters.

    Kernels are He-normal (He et al. 2015). A norm's mean and variance are those of the batch that
    passes through, so activations keep unit scale at any depth and still depend on the image;
    without that a deep random network answers nearly the same to every image."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.flat: dict[str, np.ndarray] = {}
        self.path: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self.path.append(name)
        yield
        self.path.pop()

    def _keep(self, name: str, array: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(array, np.float32)
        self.flat["/".join([*self.path, name])] = array
        return array

    def _normal(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        array = self.rng.standard_normal(shape, np.float32)
        array *= np.float32(scale)
        return array

    def conv(self, x: Tensor, features: int, size: int, stride: int = 1) -> Tensor:
        shape = (size, size, x.shape[-1], features)
        kernel = self._keep("kernel", self._normal(shape, math.sqrt(2 / math.prod(shape[:3]))))
        # Two axes: NumPy multiplies larger strided arrays row by row.
        rows = (tap.reshape(-1, shape[2]) @ kernel[at] for at, tap in _taps(x, size, stride))
        return sum(rows).reshape(len(x), *(-(-n // stride) for n in x.shape[1:3]), features)

    def depthwise(self, x: Tensor, size: int, stride: int = 1) -> Tensor:
        shape = (size, size, 1, x.shape[-1])
        kernel = self._keep("kernel", self._normal(shape, math.sqrt(2) / size))
        return sum(tap * kernel[at][0] for at, tap in _taps(x, size, stride))

    def norm(self, x: Tensor, gain: float = 1.0) -> Tensor:
        mean, var = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
        # A share of the mean variance: the last stages have few pixels to measure on.
        var = self._keep("var", 0.9 * var + 0.1 * var.mean())
        gamma = self._keep("gamma", gain * self.rng.uniform(0.6, 1.4, x.shape[-1]))
        beta = self._keep("beta", self._normal(mean.shape, 0.2 * gain))
        return (x - self._keep("mean", mean)) * (gamma / np.sqrt(var + EPSILON)) + beta

    def clip(self, x: Tensor, high: float = math.inf) -> Tensor:
        return np.clip(x, 0, high)

    def max_pool(self, x: Tensor) -> Tensor:
        return np.maximum.reduce([tap for _, tap in _taps(x, 3, 2, fill=-np.inf)])

    def classify(self, x: Tensor, classes: int) -> Tensor:
        """Scores of mean 0 and variance 1 over the batch, so that they tell images apart."""
        features = x.mean(axis=(1, 2))
        kernel = self._normal((features.shape[1], classes), 1.0)
        kernel /= (features @ kernel).std(axis=0).mean()
        bias = -(features @ kernel).mean(axis=0)
        return features @ self._keep("kernel", kernel) + self._keep("bias", bias)


Net = Apply | Initialise  # names of layers are relative to the scopes around them
Network = Callable[[Net, Tensor], Tensor]


def _taps(
    x: np.ndarray, size: int, stride: int, fill: float = 0.0
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Position in the kernel, and the pixels that it meets, with edges of size // 2."""
    edge = size // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)), constant_values=fill)
    windows = sliding_window_view(padded, (size, size), (1, 2))[:, ::stride, ::stride]
    for r, c in np.ndindex(size, size):
        yield (r, c), windows[..., r, c]


def conv_norm(
    net: Net,
    x: Tensor,
    features: int,
    size: int = 1,
    stride: int = 1,
    gain: float = 1.0,
    high: float | None = None,
) -> Tensor:
    """A convolution and its norm, which is cut off at 0 and `high` if that is given."""
    with net.scope("conv"):
        x = net.conv(x, features, size, stride)
    with net.scope("norm"):
        y = net.norm(x, gain)
        return y if high is None else net.clip(y, high)


def apply(params: Any, x: jax.Array, *, network: Network) -> jax.Array:
    """`network` in JAX: images f32[n, h, w, 3] -> scores f32[n, classes]."""
    scores: jax.Array = network(Apply(params), x)
    return scores


def initialise(network: Network, image: int, seed: int) -> dict[str, Any]:
    """Parameters of `network`, measured on images of its size: 4 of 224 pixels, more if smaller;
    the same on any number of processors."""
    net = Initialise(seed)
    count = min(64, max(4, 4 * 224**2 // image**2))
    with one_thread():
        network(net, images(count, image, seed))
    return nest(net.flat)


def classifier(name: str, network: Network, image: int, batch: int, seed: int) -> Model:
    """A model of images [batch, image, image, 3]; calibration is 16 of them, evaluation 32."""
    return Model(
        fn=partial(apply, network=network),
        params=initialise(network, image, seed),
        example_inputs=(spec((batch, image, image, 3), np.float32),),
        calibration=batches(16, batch, image, seed + 1),
        evaluation=batches(32, batch, image, seed + 2),
        name=name,
        input_names=("images",),
    )
