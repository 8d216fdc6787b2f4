"""A decoder as a `jq.Model`: some tokens at once, a cache of some capacity."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.formats import Encoding, QuantizedTensor, get_format
from jq.formats.blocks import cut_range
from jq.frontends.model import Model
from jq.language.decoder import Decoder
from jq.language.decoder.config import Config
from jq.language.decoder.network import state_shapes, step
from jq.models._tree import spec


def decoder_model(
    decoder: Decoder,
    count: int,
    capacity: int,
    *,
    context: int | None = None,
    batch: int = 1,
    cache: str = "float32",
    every: bool = False,
    apart: bool = False,
    stacks: bool = False,
) -> Model:
    """`count` tokens i32[batch, count] at a position i32[], and caches of `capacity` tokens;
    `apart`: at positions i32[batch], one for each sequence.

    Gives the logits of every token; or, with one more input in front of the caches, those of token
    `last` alone, of the position's shape. Where a state does not grow, an input in front of that
    counts the tokens that are no padding. `context` is the longest sequence that will be asked for
    (see `Rope`), `cache` the type of keys and values; `stacks`: products of experts are of
    integers, one for all of them."""
    config = decoder.config

    states = state_shapes(config, batch, capacity)
    counted = not all(grows for shapes in states for _, grows in shapes)

    def run(params: Any, tokens: Any, position: Any, *given: Any) -> Any:
        *scalars, caches = given
        there = scalars.pop(0) if counted else None
        last = None if every else scalars.pop()
        return step(config, params, tokens, position, caches, last, there)

    types = {True: jnp.dtype(cache), False: jnp.dtype(np.float32)}  # by whether a state grows
    caches = [tuple(spec(shape, types[grows]) for shape, grows in shapes) for shapes in states]
    scalar = spec((batch,) if apart else (), np.int32)
    return Model(
        run,
        separate(decoder.parameters(capacity, context), config, stacks),
        (spec((batch, count), np.int32), *[scalar] * (1 + counted + (not every)), caches),
        name=config.architecture,
    )


_BLOCK = 32  # of activations
_NAMES = ("query", "key", "value")


def separate(params: Mapping[str, Any], config: Config, stacks: bool = False) -> dict[str, Any]:
    """Parameters without a `qkv` that can be cut between its rows, and with experts as `stacks`."""
    sizes = [config.heads * config.head, *[config.kv_heads * config.head] * 2]
    rows = {name: (sum(sizes[:i]), sum(sizes[: i + 1])) for i, name in enumerate(_NAMES)}

    def of_layer(layer: Mapping[str, Any]) -> dict[str, Any]:
        mlp, attention = layer.get("mlp", {}), layer.get("attention", {})
        if stacks and "experts" in mlp and (stack := _stack(list(mlp["experts"].values()))):
            layer = {**layer, "mlp": {**mlp, "experts": stack}}
        fused = "qkv" in attention and not config.get("heads_together")
        cut = {name: _rows(attention["qkv"], *rows[name]) for name in _NAMES if fused}
        if not cut or any(node["weight"] is None for node in cut.values()):
            return dict(layer)
        return {**layer, "attention": {n: a for n, a in attention.items() if n != "qkv"} | cut}

    return {**params, "layers": {i: of_layer(layer) for i, layer in params["layers"].items()}}


def _stack(nodes: list[Any]) -> Any:
    """The tensors of experts as stacks [experts, ...], floats as Q8_0; None where none are
    what integer products take."""
    first = nodes[0]
    if isinstance(first, Mapping):
        found = {name: _stack([node[name] for node in nodes]) for name in first}
        return None if None in found.values() or {"order", "scale"} & found.keys() else found
    if len(first.shape) == 1:
        return np.stack(nodes)
    plain = not isinstance(first, QuantizedTensor)
    enc = Encoding("q8_0", first.shape, (1, _BLOCK)) if plain else first.encoding
    fmt = get_format(enc.format)
    if first.shape[-1] % _BLOCK or not (fmt.integer_bits or 16) <= 8:
        return None
    if not plain and any(node.encoding != enc for node in nodes):
        return None

    def make() -> dict[str, np.ndarray]:
        values = (np.asarray(node, np.float32) for node in nodes if plain)
        each = [fmt.encode(v, enc) for v in values] or [dict(node.parts) for node in nodes]
        return {name: np.stack([parts[name] for parts in each]) for name in each[0]}

    whole = enc.with_shape((len(nodes), *enc.shape), (1, *enc.block))
    return QuantizedTensor.made(whole, make, "experts")


def _rows(node: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    """Some rows of a product; no weight where a part has a row for codes on both sides of a cut."""
    found = dict(node)
    for name, leaf in node.items():
        if isinstance(leaf, QuantizedTensor):
            found[name] = _cut(leaf, low, high)
        elif name != "order":  # which columns have, and all rows
            found[name] = leaf[low:high]
    return found


def _cut(leaf: QuantizedTensor, low: int, high: int) -> QuantizedTensor | None:
    ranges = cut_range(leaf.encoding, 0, low, high)
    if ranges is None:
        return None
    parts = dict(leaf.parts)
    for name, (axis, first, last) in ranges.items():
        parts[name] = parts[name][(slice(None),) * axis + (slice(first, last),)]
    shape = (high - low, *leaf.shape[1:])
    return replace(leaf, encoding=replace(leaf.encoding, shape=shape), parts=parts)
