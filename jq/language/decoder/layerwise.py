"""A decoder's products quantized a layer at a time, on a text.

Of a layer only its own weights are held in float32, and what comes into it for every token of the
text. What a product is multiplied by is measured with the layers before it quantized already, so
that later layers make up for what earlier ones lost."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.base.from_jax import leaf_name
from jq.ir.memory import NO_LIBRARY
from jq.language.decoder import Decoder
from jq.language.decoder.config import Config
from jq.language.decoder.names import Leaf
from jq.language.decoder.network import empty, layer
from jq.language.decoder.products import INPUTS, Place
from jq.models._tree import flatten, nest

TOGETHER = 4  # pieces of text that go through a layer side by side

# Path of a weight, the weight f32 [out, in], and the mean of x x^T of its inputs f32 [in, in]:
# the weight as it will be stored, or None for one that stays.
Encode = Callable[[str, np.ndarray, np.ndarray], Leaf | None]


def quantized_layers(
    decoder: Decoder,
    pieces: Sequence[Sequence[int]],
    encode: Encode,
    progress: Callable[[float], None] = lambda share: None,
    start: tuple[int, np.ndarray] | None = None,
    reached: Callable[[int, np.ndarray], None] = lambda layer, x: None,
) -> Iterator[dict[str, Leaf]]:
    """The weights that `encode` gives of each layer, by paths such as `layers/0/mlp/down/weight`,
    from `start` on (a layer and what comes into it), of which `reached` is told once the caller is
    done with what the layer before gave. `pieces` of text have the same number of tokens. An expert
    counts all tokens, as if the router sent each to all."""
    config, count = decoder.config, len(pieces[0])
    if config.get("per_layer") or any("shared" in name for own in config.mixers for name in own):
        raise UserError(
            "layers of this model read what others hold, and are not quantized one by one",
            location=str(decoder.path),
        )
    params = decoder.parameters(count)
    if start is None:
        used, place = np.unique(np.asarray(pieces), return_inverse=True)
        rows = np.asarray(params["embed"]["weight"], np.float32)[used]  # decoded for that alone
        start = 0, rows[place.reshape(-1, count)] * np.float32(config.embedding_scale)
    first, x = start
    for i in range(first, config.layers):
        given = flatten(decoder.params["layers"][str(i)])
        flat = {
            name: a if name.endswith("/order") else np.asarray(a, np.float32)
            for name, a in given.items()
        }
        p, found = nest(flat), dict[str, Leaf]()
        rope = params["rope"].get(config.rope_of[i], {})
        turn = {part: jnp.asarray(table[:count]) for part, table in rope.items()}
        measure = partial(_measured, config, i)
        grams = _mean(measure(p, part, turn) for part in _parts(x))
        for name, gram in grams.items():
            leaf = encode(f"layers/{i}/{name}", flat[name], gram)
            if leaf is not None:
                found[f"layers/{i}/{name}"] = leaf
                flat[name] = np.asarray(leaf, np.float32)
        p = nest(flat)
        x = np.concatenate([np.asarray(_give(config, i, p, part, turn)) for part in _parts(x)])
        progress((i + 1) / config.layers)
        yield found
        reached(i + 1, x)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=NO_LIBRARY)
def _measured(config: Config, i: int, p: Any, x: jax.Array, turn: Any) -> dict[str, jax.Array]:
    """The mean of x x^T for every product of the layer."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(p)
    names = {id(leaf): leaf_name(path) for path, leaf in leaves}
    grams: dict[str, jax.Array] = {}

    def tap(weight: Any, inputs: jax.Array, name: str) -> jax.Array:
        rows = inputs.reshape(-1, inputs.shape[-1])
        gram = jnp.matmul(rows.T, rows, precision="highest") / len(rows)
        grams[names[id(weight)]] = gram
        return inputs

    reset = INPUTS.set(tap)
    try:
        _given(config, i, p, x, turn)
    finally:
        INPUTS.reset(reset)
    return grams


def _given(config: Config, i: int, p: Any, x: jax.Array, turn: Any) -> jax.Array:
    """The layer's result."""
    state = empty(config, len(x), x.shape[1])[i]
    with jax.default_matmul_precision("highest"):
        return layer(config, i, p, x, Place(jnp.int32(0), turn), state)[0]


_give = partial(jax.jit, static_argnums=(0, 1), compiler_options=NO_LIBRARY)(_given)


def _mean(grams: Iterator[dict[str, jax.Array]]) -> dict[str, np.ndarray]:
    total: dict[str, np.ndarray] = {}
    for count, found in enumerate(grams, start=1):
        for name, gram in found.items():
            old = total.get(name, np.float32(0))
            total[name] = old + (np.asarray(gram) - old) / np.float32(count)
    return total


def _parts(x: np.ndarray) -> Iterator[jax.Array]:
    """Some pieces at a time, what is left over one by one: two programs do."""
    size = min(TOGETHER, len(x))
    whole = len(x) // size * size
    for i in range(0, whole, size):
        yield jnp.asarray(x[i : i + size])
    for i in range(whole, len(x)):
        yield jnp.asarray(x[i : i + 1])
