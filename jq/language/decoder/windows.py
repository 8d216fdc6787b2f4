"""Layers that see only the last tokens, by a `config.json`: each model type of `transformers` has
rules of its own, and ignores keys that others read."""

from collections.abc import Mapping
from typing import Any

from jq.base.errors import UserError

# By `Architecture.windows`. Where the key is missing, `sliding_window` is:
DEFAULT = 4096
KINDS = {"sliding_attention": True, "full_attention": False}


def windows(
    rule: str, every: int, values: Mapping[str, Any], layers: int, default: int | None = DEFAULT
) -> tuple[int, ...]:
    """Number of tokens that each layer sees, 0 for all.

    Args:
        rule: "none": no layer has a window; "all": every one; "asked": every one where
            `use_sliding_window` is set; "from": likewise, from layer `max_window_layers` on, or by
            `layer_types`; "types": by `layer_types`, else every one but each `every`th, 0: every
            one.
        default: the window where there is no key for it.

    Raises:
        UserError: the values name no windows, or not for every layer.
    """
    size = values.get("sliding_window", default)
    local, asked = _local(values.get("layer_types"), layers), bool(values.get("use_sliding_window"))
    if rule == "none" or (rule in ("asked", "from") and not asked):
        size = None
    if rule in ("none", "all", "asked"):
        return (_size(size) if size is not None else 0,) * layers
    if local is None and not every and rule == "types":
        return windows("all", 0, values, layers, default)
    if local is None and rule == "from":
        first = _number(values, "max_window_layers", 28)
        local = [size is not None and i >= first for i in range(layers)]
    if local is None:
        pattern = _number(values, "sliding_window_pattern", every)
        if pattern < 1:
            raise _wrong(f"sliding_window_pattern is {pattern}")
        local = [(i + 1) % pattern != 0 for i in range(layers)]
    if any(local) and size is None:
        raise _wrong("layers of layer_types have a window, and sliding_window has no size for it")
    return tuple(_size(size) if one else 0 for one in local)


def _local(kinds: Any, layers: int) -> list[bool] | None:
    if kinds is None:
        return None
    known = isinstance(kinds, list) and all(isinstance(k, str) and k in KINDS for k in kinds)
    if not known or len(kinds) != layers:
        raise _wrong(f"layer_types are {kinds!r:.80}")
    return [KINDS[kind] for kind in kinds]


def _size(value: Any) -> int:
    if type(value) is not int or not 0 < value < 1 << 31:
        raise _wrong(f"sliding_window is {value!r:.40}")
    return value


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    if value is not None and type(value) is not int:
        raise _wrong(f"{key} is {value!r:.40}")
    return default if value is None else value


def _wrong(reason: str) -> UserError:
    return UserError(f"the config describes no known model: {reason}")
