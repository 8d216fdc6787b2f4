"""The part of a model that makes text, in a `config.json` and among tensors."""

from collections.abc import Iterable, Mapping
from typing import Any

from jq.base.errors import UserError

# Of a model with parts: the key of the part that makes text, what the whole says for it, and names
# of its tensors where they stand as those of a model of text do.
TEXT, _SHARED = "text_config", ("quantization_config", "quantization", "tie_word_embeddings")
_PLAIN = ("lm_head.", "model.embed_tokens.", "model.layers.", "model.norm.")
_INSIDE = ("language_model.", "text_model.")
_HEAD = 256  # of Gemma 4 where a config does not say
_NAKED = ("embed_tokens.", "layers.", "norm.")  # of what has no head, as models of embeddings


def text_of(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a config for the part that makes text, of a model that may also see or hear."""
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
        return {**values, "global_head_dim": values.get("head_dim", _HEAD)}
    if not isinstance(given, dict) or not isinstance(kinds, list):
        return values
    first = next(iter(given.values()))
    full = {str(i) for i, kind in enumerate(kinds) if kind == "full_attention"}
    alike = isinstance(first, dict) and all(own == first for own in given.values())
    if not alike or given.keys() != full or first.keys() - {"head_dim", "num_key_value_heads"}:
        raise UserError(f"the config describes no known model: per_layer_config is {given!r:.60}")
    heads = {"num_global_key_value_heads": first.get("num_key_value_heads")}
    return {**values, **heads, "global_head_dim": first.get("head_dim")}
