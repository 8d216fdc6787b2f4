"""Ops that people write, between convolutions, on devices without floats: what a refusal names.

What a model is allowed to be told is read from its traced program alone: the names and kinds of its
ops, and the functions that many ops make up. Anything else comes from a rewrite of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.ir.build import NAME, string_attr
from jq.ir.values import kind_of

DIMS = ("NHWC", "HWIO", "NHWC")
FUNCTIONS = ("softmax", "normalization", "attention")
TARGETS = (
    *("ethos-u55", "ethos-u65", "ethos-u85"),
    *("litert", "litert-reference", "npu-int8", "npu-per-tensor", "onnx-qdq"),
)
Fn = Callable[[Any, Any], Any]


def convolution(x: Any, w: Any, by: int = 1, **options: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (by, by), "SAME", dimension_numbers=DIMS, **options)


def attention(p: Any, x: Any) -> Any:
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    q, k, v = (rows @ p[name] for name in "qkv")
    return (jax.nn.softmax(q @ k.swapaxes(1, 2) / 2) @ v).reshape(x.shape)


def heads(p: Any, x: Any) -> Any:
    rows = x.reshape(x.shape[0], -1, 2, x.shape[-1] // 2)
    return jax.nn.dot_product_attention(rows, rows, rows).reshape(x.shape)


def group_norm(p: Any, x: Any) -> Any:
    g = x.reshape(*x.shape[:-1], 2, -1)
    centered = g - g.mean((1, 2, 4), keepdims=True)
    square = (centered**2).mean((1, 2, 4), keepdims=True)
    return (centered / jnp.sqrt(square + 1e-5)).reshape(x.shape)


def layer_norm(p: Any, x: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * p["a"]


def rows(x: Any) -> Any:
    """A number for each row of pixels."""
    return jnp.arange(x.shape[1], dtype=jnp.float32)[:, None, None] / 4 - 1


def recurrent(p: Any, x: Any) -> Any:
    """A GRU along the pixels, which returns all of its states."""

    def step(h: Any, v: Any) -> Any:
        z = jax.nn.sigmoid(v @ p["q"] + h @ p["k"])
        h = (1 - z) * jnp.tanh(v @ p["v"] + z * h) + z * h
        return h, h

    rows = x.reshape(x.shape[0], -1, x.shape[-1]).swapaxes(0, 1)
    return jax.lax.scan(step, jnp.zeros_like(rows[0]), rows)[1].swapaxes(0, 1).reshape(x.shape)


def masked_attention(p: Any, x: Any) -> Any:
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    q, k, v = (rows @ p[name] for name in "qkv")
    seen = np.tri(rows.shape[1], dtype=bool)
    scores = jnp.where(seen, q @ k.swapaxes(1, 2) / 2, jnp.finfo(jnp.float32).min)
    return (jax.nn.softmax(scores) @ v).reshape(x.shape)


def scaled(up: float, method: str) -> Fn:
    """A resize of both axes of pixels."""
    return lambda p, x: jax.image.resize(
        x, (x.shape[0], int(up * x.shape[1]), int(up * x.shape[2]), x.shape[3]), method
    )


def padded(mode: str) -> Fn:
    return lambda p, x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode)  # type: ignore[call-overload]


def single_groups(p: Any, x: Any) -> Any:
    g = x.reshape(*x.shape[:-1], 4, -1)
    centered = g - g.mean(-1, keepdims=True)
    return (centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)


def larger(shape: tuple[int, ...]) -> tuple[int, ...]:
    b, h, w, c = shape
    return b, 2 * h, 2 * w, c


def pool(p: Any, x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 4, 4, 1), "SAME")


def shuffled(p: Any, x: Any) -> Any:
    b, h, w, c = x.shape
    y = x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return jnp.tile(y.reshape(b, 2 * h, 2 * w, c // 4), (1, 1, 1, 4))


# Of p, weights q, k, v [C, C], w [3, 3, C, C], a and b [C], and x [B, H, W, C], C a multiple of 4.
OPS: dict[str, Fn] = {
    "prelu": lambda p, x: jnp.where(x > 0, x, p["a"] * x),
    "prelu_from_below": lambda p, x: jnp.where(x <= 0, x * p["a"], x),
    "two_slopes": lambda p, x: jnp.where(x < 0, x * p["a"], x * p["b"]),
    "prelu_of_pixels": lambda p, x: jnp.where(x >= 0, x, x * rows(x)),
    "leaky": lambda p, x: jax.nn.leaky_relu(x),
    "elu": lambda p, x: jax.nn.elu(x),
    "abs_choice": lambda p, x: jnp.where(x > 0.5, x, -2 * x),
    "choice_of_two": lambda p, x: jnp.where(x > x[:, :, ::-1], x, 0.0),
    "attention": attention,
    "heads": heads,
    "softmax": lambda p, x: jax.nn.softmax(x),
    "softmax_of_rows": lambda p, x: jax.nn.softmax(x, axis=1),
    "log_softmax": lambda p, x: jax.nn.log_softmax(x),
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "rms_norm": lambda p, x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6),
    "unit_length": lambda p, x: x / jnp.linalg.norm(x, axis=-1, keepdims=True),
    "standardized": lambda p, x: x / jnp.std(x, (1, 2), keepdims=True),
    "transposed": lambda p, x: jax.lax.conv_transpose(x, p["w"], (2, 2), "SAME"),
    "linear": lambda p, x: jax.image.resize(x, larger(x.shape), "linear"),
    "nearest": lambda p, x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2),
    "groups": lambda p, x: convolution(x, p["w"][:, :, : x.shape[-1] // 2], feature_group_count=2),
    "stride": lambda p, x: convolution(x, p["w"], 4),
    "pool": pool,
    "shuffled": shuffled,
    "divided": lambda p, x: x / (1 + jnp.abs(p["a"])),
    "quotient": lambda p, x: x / (1 + jnp.abs(x[:, ::-1])),
    "gate": lambda p, x: x * jax.nn.sigmoid(x.mean((1, 2)) @ p["q"])[:, None, None],
    "products": lambda p, x: jnp.einsum("bhwc,bhwd->bhcd", x, x),
    "sorted": lambda p, x: jnp.sort(x),
    "largest": lambda p, x: jax.nn.one_hot(jnp.argmax(x, -1), x.shape[-1]),
    "top": lambda p, x: jax.lax.top_k(x, x.shape[-1])[0],
    "product": lambda p, x: jnp.prod(x, -1, keepdims=True) + x,
    "power": lambda p, x: jnp.power(jnp.abs(x), jnp.abs(p["a"])),
    "angle": lambda p, x: jnp.arctan2(x, x[:, ::-1]),
    "reversed": lambda p, x: x[:, ::-1],
    "rolled": lambda p, x: jnp.roll(x, 1, 1),
    "snake": lambda p, x: x + jnp.sin(p["a"] * x) ** 2 / p["a"],
    "zeros": lambda p, x: convolution(x, 0 * p["w"]),
    "running": lambda p, x: jnp.cumsum(x, -1),
    "recurrent": recurrent,
    "masked_attention": masked_attention,
    "single_groups": single_groups,
    "cubic": scaled(2, "cubic"),
    "linear_by_3": scaled(3, "linear"),
    "linear_half": scaled(0.5, "linear"),
    "nearest_half": scaled(0.5, "nearest"),
    "transposed_by_3": lambda p, x: jax.lax.conv_transpose(x, p["w"], (3, 3), "SAME"),
    "transposed_valid": lambda p, x: jax.lax.conv_transpose(x, p["w"], (2, 2), "VALID"),
    "transposed_edges": lambda p, x: jax.lax.conv_transpose(x, p["w"], (2, 1), [(2, 1), (1, 2)]),
    "softmax_of_pixels": lambda p, x: jax.nn.softmax(x, (1, 2)),
    "running_rows": lambda p, x: jnp.cumsum(x, 1),
    "running_largest": lambda p, x: jax.lax.cummax(x, axis=1),
    "shuffled_channels": lambda p, x: x[..., np.roll(np.arange(x.shape[-1]), 1)],
    "sorted_rows": lambda p, x: jnp.sort(x, 1),
    "chosen_by_channel": lambda p, x: jnp.where(np.arange(x.shape[-1]) % 2 == 0, x, 0.0),
    "clipped_by_channel": lambda p, x: jnp.clip(x, -jnp.abs(p["a"]), jnp.abs(p["b"])),
    **{f"edges_{mode}": padded(mode) for mode in ("reflect", "edge", "symmetric", "wrap")},
}


@dataclass(frozen=True)
class Case:
    """One op or two between convolutions, on one target."""

    names: tuple[str, ...]
    target: str
    channels: int
    size: int
    seed: int

    def model(self) -> jq.Model:
        rng, c, n = np.random.default_rng(self.seed), self.channels, self.size

        def real(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape).astype(np.float32)

        params = {name: real(c, c) for name in "qkv"} | {"a": real(c), "b": real(c)}
        params |= {name: real(3, 3, c, c) for name in ("first", "w", "last")}

        def fn(p: Any, x: Any) -> Any:
            x = convolution(x, p["first"])
            for name in self.names:
                x = OPS[name](p, x)
            return convolution(x, p["last"])

        return jq.Model(fn, params, (real(1, n, n, c),), name="_".join(self.names))


def drawn(count: int, seed: int) -> Iterator[Case]:
    """The first cases have every op on some target each; then pairs, all at random."""
    rng = np.random.default_rng(seed)
    names = list(OPS)
    for i in range(count):
        several = (names[i],) if i < len(names) else tuple(rng.choice(names, rng.integers(1, 3)))
        yield Case(
            tuple(map(str, several)),
            str(rng.choice(TARGETS)),
            int(rng.choice([4, 8])),
            int(rng.choice([4, 8])),
            int(rng.integers(1 << 30)),
        )


def wrong(case: Case) -> tuple[int, list[str]]:
    """The number of refusals, and those that name what is not in the traced program."""
    model = case.model()
    source = jq.trace(model)  # it has to live as long as its ops
    ops = list(source.program.walk())
    names = {string_attr(op, NAME) for op in ops}
    kinds = {kind_of(op).removeprefix("stablehlo.") for op in ops}
    refused = jq.check(model, case.target)["refused"]
    found = []
    for row in refused:
        ours = row["name"] not in names or row["op"] not in {*kinds, *FUNCTIONS}
        if ours or not row["reason"] or not row["help"]:
            found.append(f"{case}: [{row['name']}] {row['op']}: {row['reason']}; {row['help']}")
    return len(refused), found
