"""Models of several parts in a folder of Hugging Face, of which one makes text."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError

# Of a model with parts: the key of the part that makes text, what the whole says for it, and names
# of its tensors where they stand as those of a model of text do.
TEXT, _SHARED = "text_config", ("quantization_config", "quantization", "tie_word_embeddings")
_PLAIN = ("lm_head.", "model.embed_tokens.", "model.layers.", "model.norm.")


def text_of(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a config for the part that makes text, where the model has others (that see or
    hear) as well."""
    text = values.get(TEXT)
    if not isinstance(text, dict):
        return values
    shared = {k: values[k] for k in _SHARED if values.get(k) is not None}
    return {**shared, **text, TEXT: True}


def tensors_of_text(held: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of that part, named as those of a model of text alone."""
    found = {}
    for name, array in held.items():
        _, part, after = name.partition("language_model.")
        whole = after if after.startswith(("model.", "lm_head.")) else f"model.{after}"
        if part or name.startswith(_PLAIN):
            found[whole if part else name] = array
    return found


def with_wide_heads(values: dict[str, Any]) -> dict[str, Any]:
    """A config whose `per_layer_config` is said by two keys, as files say it that do not have it:
    layers without a window have other heads.

    Raises:
        UserError: it says anything else.
    """
    given, kinds = values.get("per_layer_config"), values.get("layer_types")
    if not isinstance(given, dict) or not given or not isinstance(kinds, list):
        return values
    first = next(iter(given.values()))
    full = {str(i) for i, kind in enumerate(kinds) if kind == "full_attention"}
    alike = isinstance(first, dict) and all(own == first for own in given.values())
    if not alike or given.keys() != full or first.keys() - {"head_dim", "num_key_value_heads"}:
        raise UserError(f"the config describes no known model: per_layer_config is {given!r:.60}")
    heads = {"num_global_key_value_heads": first.get("num_key_value_heads")}
    return {**values, **heads, "global_head_dim": first.get("head_dim")}
