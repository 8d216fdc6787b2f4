"""A decoder as a `jq.Model`: some tokens at once, a cache of some capacity."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.formats.base import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.frontends.model import Model
from jq.language.decoder import Decoder
from jq.language.decoder.checkpoints.method import MadeParts
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
    integers, one for all of them.
    """
    config = decoder.config

    states = state_shapes(config, batch, capacity)
    counted = not all(grows for shapes in states for _, grows in shapes)

    def run(params: Any, tokens: Any, position: Any, *given: Any) -> Any:
        *scalars, caches = given
        there = scalars.pop(0) if counted else None
        last = None if every else scalars.pop()
        return step(config, params, tokens, position, caches, last, there)

    caches = [
        tuple(spec(shape, jnp.dtype(cache if grows else np.float32)) for shape, grows in shapes)
        for shapes in states
    ]
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
    """The tree of parameters without any `qkv` that can be cut between its rows, and with experts
    as `stacks`."""
    sizes = [config.heads * config.head, *[config.kv_heads * config.head] * 2]
    ends = np.cumsum(sizes).tolist()
    rows = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def of_layer(layer: Mapping[str, Any]) -> dict[str, Any]:
        mlp, attention = layer.get("mlp", {}), dict(layer.get("attention", {}))
        if stacks and "experts" in mlp and (stack := _stack(list(mlp["experts"].values()))):
            layer = {**layer, "mlp": {**mlp, "experts": stack}}
        fused = attention.pop("qkv", None)
        if fused is None or not _can_be_cut(fused["weight"], ends):
            return dict(layer)
        for name, some in zip(_NAMES, rows, strict=True):
            # The order of columns is that of all rows.
            attention[name] = {
                part: leaf if part == "order" else _rows(leaf, some) for part, leaf in fused.items()
            }
        return {**layer, "attention": attention}

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
        each = [
            fmt.encode(np.asarray(n, np.float32), enc) if plain else dict(n.parts) for n in nodes
        ]
        return {name: np.stack([parts[name] for parts in each]) for name in each[0]}

    whole = enc.with_shape((len(nodes), *enc.shape), (1, *enc.block))
    return QuantizedTensor(whole, MadeParts(tuple(fmt.storage(enc)), make), "experts")


def _can_be_cut(leaf: Any, ends: list[int]) -> bool:
    """No part has a row for codes on both sides of a cut."""
    if not isinstance(leaf, QuantizedTensor):
        return True
    steps = [leaf.shape[0] / len(part) for part in leaf.parts.values() if not _shared(part)]
    return all(end % step == 0 for step in steps for end in ends)


def _rows(leaf: Any, rows: slice) -> Any:
    if not isinstance(leaf, QuantizedTensor):
        return leaf[rows]
    parts = {}
    for name, part in leaf.parts.items():
        step = leaf.shape[0] // len(part) if not _shared(part) else 0
        parts[name] = part[rows.start // step : rows.stop // step] if step else part
    shape = (rows.stop - rows.start, *leaf.shape[1:])
    return replace(leaf, encoding=replace(leaf.encoding, shape=shape), parts=parts)


def _shared(part: np.ndarray) -> bool:
    """True if all rows have it in common."""
    return part.ndim == 0 or len(part) == 1
