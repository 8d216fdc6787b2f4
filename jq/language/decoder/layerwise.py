"""A decoder's products quantized a layer at a time, on a text.

Of a layer only its own weights are held in float32, and what comes into it for every token of the
text, from layers that are quantized already and from those of the model: products are solved for
the inputs that they will get, and aim at what makes up for a share of the difference (`aimed`)."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.base.from_jax import leaf_name
from jq.base.system.threads import one_thread
from jq.ir.memory import NO_LIBRARY
from jq.language.decoder import Decoder
from jq.language.decoder.config import Config
from jq.language.decoder.names import Leaf
from jq.language.decoder.network import empty, layer
from jq.language.decoder.products import INPUTS, Place
from jq.models._tree import flatten, nest
from jq.passes.recovery.gptaq import Gptaq, toward

TOGETHER = 4  # pieces of text that go through a layer side by side
Moments = tuple[np.ndarray, np.ndarray]  # means of x' x'^T and of x' (x - x')^T, f32 [in, in]
Aim = Callable[[], np.ndarray]
# Path of a weight, what gives the one f32 [out, in] to come close to, which is costly, and the mean
# of x x^T of its inputs f32 [in, in]: the weight as it will be stored, or None for one that stays.
Encode = Callable[[str, Aim, np.ndarray], Leaf | None]


def quantized_layers(
    decoder: Decoder,
    pieces: Sequence[Sequence[int]],
    encode: Encode,
    progress: Callable[[float], None] = lambda share: None,
    start: tuple[int, np.ndarray] | None = None,
    reached: Callable[[int, np.ndarray], None] = lambda layer, x: None,
) -> Iterator[dict[str, Leaf]]:
    """The weights that `encode` gives of each layer, by paths such as `layers/0/mlp/down/weight`,
    from `start` on (a layer and what comes into it, f32 [2, pieces, tokens, hidden]: from quantized
    layers, and from the model's), of which `reached` is told once the caller is done with what the
    layer before gave. `pieces` of text have the same number of tokens. An expert counts all tokens,
    as if the router sent each to all."""
    config, count = decoder.config, len(pieces[0])
    if config.get("per_layer") or any("shared" in name for own in config.mixers for name in own):
        what = "layers of this model read what others hold, and are not quantized one by one"
        raise UserError(what, location=str(decoder.path))
    params = decoder.parameters(count)
    if start is None:
        used, place = np.unique(np.asarray(pieces), return_inverse=True)
        rows = np.asarray(params["embed"]["weight"], np.float32)[used]  # decoded for that alone
        begin = rows[place.reshape(-1, count)] * np.float32(config.embedding_scale)
        begin = begin + params["rope"].get("positions", {"rows": np.float32(0)})["rows"]
        start = 0, np.stack([begin, begin])
    first, x = start
    for i in range(first, config.layers):
        given = flatten(decoder.params["layers"][str(i)])
        plain = {n: np.asarray(a, np.float32) for n, a in given.items() if not n.endswith("/order")}
        flat = {**given, **plain}
        p, found = nest(flat), dict[str, Leaf]()
        rope = params["rope"].get(config.rope_of[i], {})
        turn = {part: jnp.asarray(table[:count]) for part, table in rope.items()}
        measure = partial(_measured, config, i)
        moments = _mean(measure(p, *part, turn) for part in _parts(x))
        rows_of_text = x[0].size // x.shape[-1]
        for name, (gram, cross) in moments.items():
            aim = partial(aimed, flat[name], gram, cross, rows_of_text)
            leaf = encode(f"layers/{i}/{name}", aim, gram)
            if leaf is not None:
                found[f"layers/{i}/{name}"] = leaf
                flat[name] = np.asarray(leaf, np.float32)
        pairs = [
            [
                _give(config, i, each, own, turn)
                for each, own in zip((nest(flat), p), part, strict=True)
            ]
            for part in _parts(x)
        ]
        x = np.concatenate([np.stack(pair) for pair in pairs], axis=1)
        progress((i + 1) / config.layers)
        yield found
        reached(i + 1, x)


def aimed(weight: np.ndarray, gram: np.ndarray, cross: np.ndarray, rows: int) -> np.ndarray:
    """The weight f32 [out, in] to come close to: a share of the way to the best one for the inputs
    that it will get (`jq.passes.recovery.gptaq`), where `rows` of them are enough."""
    with one_thread():
        found = toward(weight.T, gram, cross, rows, Gptaq.earlier)
    return weight if found is None else found.T


@partial(jax.jit, static_argnums=(0, 1), compiler_options=NO_LIBRARY)
def _measured(
    config: Config, i: int, p: Any, ours: jax.Array, theirs: jax.Array, turn: Any
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """The moments of every product of the layer."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(p)
    names = {id(leaf): leaf_name(path) for path, leaf in leaves}
    seen: list[dict[str, jax.Array]] = []

    def tap(weight: Any, inputs: jax.Array, name: str) -> jax.Array:
        seen[-1][names[id(weight)]] = inputs.reshape(-1, inputs.shape[-1])
        return inputs

    reset = INPUTS.set(tap)
    try:
        for x in (ours, theirs):
            seen.append({})
            _given(config, i, p, x, turn)
    finally:
        INPUTS.reset(reset)
    mean = partial(jnp.matmul, precision="highest")
    pairs = ((name, x, seen[1][name] - x) for name, x in seen[0].items())
    return {name: (mean(x.T, x) / len(x), mean(x.T, off) / len(x)) for name, x, off in pairs}


def _given(config: Config, i: int, p: Any, x: jax.Array, turn: Any) -> jax.Array:
    """The layer's result."""
    state = empty(config, len(x), x.shape[1])[i]
    with jax.default_matmul_precision("highest"):
        return layer(config, i, p, x, Place(jnp.int32(0), turn), state)[0]


_give = partial(jax.jit, static_argnums=(0, 1), compiler_options=NO_LIBRARY)(_given)


def _mean(parts: Iterator[dict[str, Any]]) -> dict[str, Moments]:
    total: dict[str, Any] = {}
    for count, found in enumerate(parts, start=1):
        for name, pair in found.items():
            old = total.get(name, np.float32(0))
            total[name] = old + (np.stack(pair) - old) / np.float32(count)
    return total


def _parts(x: np.ndarray) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Some pieces of both at a time, what is left over one by one: two programs do."""
    count = x.shape[1]
    size = min(TOGETHER, count)
    whole = count // size * size
    for i, by in [(i, size) for i in range(0, whole, size)] + [(i, 1) for i in range(whole, count)]:
        yield jnp.asarray(x[0, i : i + by]), jnp.asarray(x[1, i : i + by])
