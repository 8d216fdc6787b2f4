"""The part of a model that makes text, and its layers that see only the last tokens, by a
`config.json`: each model type of `transformers` has rules of its own for these layers, and ignores
keys that others read."""

from collections.abc import Iterable, Mapping
from typing import Any

from jq.base.errors import UserError

# Of a model with parts: the key of the part that makes text, what the whole says for it, and names
# of its tensors where they stand as those of a model of text do.
TEXT, _SHARED = "text_config", ("quantization_config", "quantization", "tie_word_embeddings")
_PLAIN = ("lm_head.", "model.embed_tokens.", "model.layers.", "model.norm.")
_INSIDE = ("language_model.", "text_model.")
_NAKED = ("embed_tokens.", "layers.", "norm.")  # of what has no head, as models of embeddings


def text_of(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a config for the part that makes text, where the model has others (that see or
    hear) as well."""
    text = values.get(TEXT)
    if not isinstance(text, dict):  # in old files what makes text is not apart
        return {**values, TEXT: True} if isinstance(values.get("vision_config"), dict) else values
    shared = {k: values[k] for k in _SHARED if values.get(k) is not None}
    return {**shared, **text, TEXT: True}


def names_of_text(values: Mapping[str, Any], held: Iterable[str]) -> dict[str, str]:
    """The names of the tensors of that part as those of a model of text alone have them, and as the
    file has them; `values` of the config."""
    held = list(held)
    if not text_of(dict(values)).get(TEXT) and not any(name.startswith(_NAKED) for name in held):
        return {name: name for name in held}
    found = {}
    for name in held:
        part = next((part for part in _INSIDE if part in name), "")
        after = name.partition(part)[2] if part else name
        if part or name.startswith(_PLAIN + _NAKED):
            plain = after.startswith(("model.", "lm_head."))
            found[after if plain else f"model.{after}"] = name
    return found


def with_wide_heads(values: dict[str, Any]) -> dict[str, Any]:
    """A config whose `per_layer_config` is said by two keys, as files say it that do not have it:
    layers without a window have other heads. `UserError` where it says anything else."""
    given, kinds = values.get("per_layer_config"), values.get("layer_types")
    if given == {}:  # all are alike
        return {**values, "global_head_dim": values.get("head_dim")}
    if not isinstance(given, dict) or not isinstance(kinds, list):
        return values
    first = next(iter(given.values()))
    full = {str(i) for i, kind in enumerate(kinds) if kind == "full_attention"}
    alike = isinstance(first, dict) and all(own == first for own in given.values())
    if not alike or given.keys() != full or first.keys() - {"head_dim", "num_key_value_heads"}:
        raise UserError(f"the config describes no known model: per_layer_config is {given!r:.60}")
    heads = {"num_global_key_value_heads": first.get("num_key_value_heads")}
    return {**values, **heads, "global_head_dim": first.get("head_dim")}


KINDS = {"sliding_attention": True, "full_attention": False}


def windows(
    rule: str, every: int, values: Mapping[str, Any], layers: int, default: int | None
) -> tuple[int, ...]:
    """Number of tokens that each layer sees, 0 for all; `default` where there is no key for the
    window. `ValueError` where the values name no windows, or not for every layer.

    By the rule "none" no layer has a window; "all": every one; "asked": every one where
    `use_sliding_window` is set; "from": likewise, from layer `max_window_layers` on; others by
    `layer_types`, and so is "from" where they are there. Else "types": every one but each
    `every`th, 0: every one; "fixed": likewise, whatever `sliding_window_pattern` says; "turned":
    those that turn; "still": those that do not, where they are asked for."""
    size, kinds = values.get("sliding_window", default), values.get("layer_types")
    known = isinstance(kinds, list) and all(isinstance(k, str) and k in KINDS for k in kinds)
    if kinds is not None and not (known and len(kinds) == layers):
        raise ValueError(f"layer_types are {kinds!r:.80}")
    asked = bool(values.get("use_sliding_window"))
    if rule == "none" or (rule in ("asked", "from") and not asked):
        size = None
    if rule in ("none", "all", "asked") or (kinds is None and not every and rule == "types"):
        local = [size is not None] * layers
    elif kinds is not None:
        local = [KINDS[kind] for kind in kinds]
    elif rule in ("still", "turned"):
        still, there = rule == "still", size is not None and (asked or rule == "turned")
        local = [there and bool(turns) != still for turns in values["no_rope_layers"]]
    elif rule == "from":
        first = _number(values, "max_window_layers", 28)
        local = [size is not None and i >= first for i in range(layers)]
    else:
        pattern = every if rule == "fixed" else _number(values, "sliding_window_pattern", every)
        if pattern < 1:
            raise ValueError(f"sliding_window_pattern is {pattern}")
        local = [(i + 1) % pattern != 0 for i in range(layers)]
    if not any(local):
        return (0,) * layers
    if size is None:
        raise ValueError("layer_types have a window, and sliding_window has no size for it")
    if type(size) is not int or not 0 < size < 1 << 31:
        raise ValueError(f"sliding_window is {size!r:.40}")
    return tuple(size if one else 0 for one in local)


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    if value is not None and type(value) is not int:
        raise ValueError(f"{key} is {value!r:.40}")
    return default if value is None else value
