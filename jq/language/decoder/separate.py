"""Queries, keys and values that a file holds as one matrix, as three over the same memory: products
may then differ in the format of what they read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jq.formats.tensor import QuantizedTensor
from jq.language.decoder.config import Config

_NAMES = ("query", "key", "value")


def separate(params: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The tree of parameters without any `qkv` that can be cut between its rows."""
    sizes = [config.heads * config.head, *[config.kv_heads * config.head] * 2]
    ends = np.cumsum(sizes).tolist()
    rows = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def of_layer(layer: Mapping[str, Any]) -> dict[str, Any]:
        attention = dict(layer.get("attention", {}))
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
