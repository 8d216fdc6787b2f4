"""Convolutional network for scikit-learn's 8x8 handwritten digits, trained on first use.

Three 3x3 convolutions (the second strided), a max pooling and a dense layer. 1,253 images train it;
the other 544 (30 %) are its evaluation set and take part in nothing else."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.artifact.store import Cache
from jq.base.errors import UserError
from jq.base.registry import need
from jq.frontends.model import Batch, Model
from jq.models._convnet import convolved
from jq.models._tree import flatten, nest, spec

Params = Any


def train_classifier(
    fn: Callable[..., jax.Array],
    params: Params,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    batch: int,
    rate: float,
    decay: float,
    seed: int,
) -> Params:
    """Minimises the cross entropy of `fn(params, images[i])` against `labels[i]`.

    Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019) and a cosine
    schedule from `rate` to 0. Every epoch visits a new permutation of the data and leaves out its
    incomplete last batch."""
    import optax  # takes long to import

    rng = np.random.default_rng(seed)
    per_epoch = len(images) // batch
    falling = optax.cosine_decay_schedule(rate, epochs * per_epoch)
    rule = optax.adamw(lambda done: falling(done + 1), weight_decay=decay)

    def loss(p: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(fn(p, x), y).mean()

    @jax.jit  # one step, called in a Python loop: XLA's CPU convolutions crawl inside a `while`
    def step(p: Params, state: Any, x: jax.Array, y: jax.Array) -> Any:
        changes, state = rule.update(jax.grad(loss)(p, x, y), state, p)
        return optax.apply_updates(p, changes), state

    state = rule.init(params)
    for _ in range(epochs):
        order = rng.permutation(len(images))[: per_epoch * batch]
        for index in order.reshape(per_epoch, batch):
            params, state = step(params, state, images[index], labels[index])
    return params


TEST = 544
STRIDES = (1, 2, 1)
CLASSES = 10


def forward(params: Any, images: jax.Array) -> jax.Array:
    """f32[n, 8, 8, 1] in [0, 1] -> scores f32[n, 10]."""
    x = images
    for i, stride in enumerate(STRIDES):
        layer = params[f"conv{i}"]
        with jax.named_scope(f"conv{i}"):
            x = jnp.maximum(convolved(x, layer["kernel"], stride) + layer["bias"], 0)
    with jax.named_scope("pool"):
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, window, "VALID")
    with jax.named_scope("dense"):
        flat = x.reshape(x.shape[0], -1)
        scores: jax.Array = flat @ params["dense"]["kernel"] + params["dense"]["bias"]
    return scores


def initial(width: int, seed: int = 0) -> dict[str, Any]:
    """He-normal kernels and zero biases; `width` channels, then twice and four times as many."""
    rng = np.random.default_rng(seed)
    channels = [1, width, 2 * width, 4 * width]
    shapes: dict[str, tuple[int, ...]] = {
        f"conv{i}": (3, 3, channels[i], channels[i + 1]) for i in range(3)
    }
    shapes["dense"] = (2 * 2 * 4 * width, CLASSES)
    params = {}
    for name, shape in shapes.items():
        kernel = np.sqrt(2 / np.prod(shape[:-1])) * rng.standard_normal(shape)
        bias = np.zeros(shape[-1], np.float32)
        params[name] = {"kernel": kernel.astype(np.float32), "bias": bias}
    return params


@cache
def splits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, test images and labels; a fixed shuffle of the data set."""
    digits = need("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = (digits.images[order, :, :, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]


def train(width: int, epochs: int) -> dict[str, np.ndarray]:
    """Flat parameters after `epochs` passes over the training images and their shifts."""
    images, labels, _, _ = splits()
    shifted = half_shifts(images)
    trained = train_classifier(
        forward,
        initial(width),
        shifted,
        np.tile(labels, len(shifted) // len(images)),
        epochs=epochs,
        batch=64,
        rate=4e-3,
        decay=0.01,
        seed=1,
    )
    return flatten(trained)


def half_shifts(images: np.ndarray) -> np.ndarray:
    """The images, then eight shifts of all by half a pixel (the mean with a neighbour)."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    offsets = [(0, 0)] + [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x]
    moved = [padded[:, 1 + y : 9 + y, 1 + x : 9 + x] for y, x in offsets]
    return np.concatenate([0.5 * (images + m) for m in moved]).astype(np.float32)


def accuracy(outputs: Any, labels: Any) -> dict[str, float]:
    """Share of samples whose largest score is at their label; any leading axes."""
    guess = np.asarray(outputs).reshape(-1, CLASSES).argmax(axis=1)
    return {"accuracy": float(np.mean(guess == np.asarray(labels).reshape(-1)))}


def build(width: int = 16, epochs: int = 6, batch: int = 32) -> Model:
    """The trained network. `batch` must divide the 544 test images.

    Calibration is 128 training images (or four batches, if that is more)."""
    if batch < 1 or TEST % batch:
        raise UserError(f"batch {batch} does not divide the {TEST} test images", hint="try 32")
    trained = Cache("model").of(["digits_cnn", width, epochs], lambda: train(width, epochs))
    return Model(
        fn=forward,
        params=nest(trained),
        example_inputs=(spec((batch, 8, 8, 1), np.float32),),
        calibration=_batches(0, batch, max(4, -(-128 // batch))),
        evaluation=_batches(2, batch, TEST // batch),
        labels=lambda: splits()[3],
        metric=accuracy,
        name="digits_cnn",
        input_names=("images",),
    )


def _batches(split: int, batch: int, count: int) -> Callable[[], list[Batch]]:
    return lambda: [(splits()[split][i * batch :][:batch],) for i in range(count)]
