"""Random images with the structure of photographs."""

from collections.abc import Callable

import numpy as np

from jq.frontends.model import Batch


def images(count: int, size: int, seed: int) -> np.ndarray:
    """f32[count, size, size, 3], each of mean 0 and variance 1 or less.

    Two textures of different brightness and contrast that meet at a sharp, curved edge.
    Textures have the spectrum of photographs, amplitude 1 / frequency (Field 1987), and
    colour channels that go together.
    """
    rng = np.random.default_rng((seed, size))
    first, second = (_texture(rng, count, size) for _ in range(2))
    edge = _fields(rng, (count, size, size, 1), power=2.0) > 0
    contrast = rng.uniform(0.2, 1.0, (count, 1, 1, 1))
    shade = rng.normal(0, 1, (count, 1, 1, 3))
    mixed = np.where(edge, first, contrast * second + shade)
    mixed -= mixed.mean(axis=(1, 2, 3), keepdims=True)
    mixed /= np.maximum(mixed.std(axis=(1, 2, 3), keepdims=True), 1.0)
    return mixed.astype(np.float32)


def batches(count: int, batch: int, size: int, seed: int) -> Callable[[], list[Batch]]:
    """A function that returns `count` images, rounded up to whole batches."""
    total = -(-count // batch)

    def make() -> list[Batch]:
        return [(part,) for part in np.split(images(total * batch, size, seed), total)]

    return make


def _texture(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    grey = _fields(rng, (count, size, size, 1), power=1.0)
    return grey + 0.4 * _fields(rng, (count, size, size, 3), power=1.0)


def _fields(rng: np.random.Generator, shape: tuple[int, ...], power: float) -> np.ndarray:
    """Gaussian fields over axes 1 and 2, amplitude f**-power, variance 1."""
    rows, columns = np.fft.fftfreq(shape[1]), np.fft.rfftfreq(shape[2])
    frequency = np.hypot(rows[:, None], columns)
    frequency[0, 0] = np.inf  # no constant part
    noise = np.fft.rfft2(rng.standard_normal(shape), axes=(1, 2))
    field = np.fft.irfft2(noise / frequency[..., None] ** power, s=shape[1:3], axes=(1, 2))
    return np.asarray(field / field.std(axis=(1, 2), keepdims=True))
