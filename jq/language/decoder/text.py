"""The part of a model that makes text, in a `config.json` and among tensors."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError

# Of a model with parts: the key of the part that makes text, what the whole says for it, and names
# of its tensors where they stand as those of a model of text do.
TEXT, _SHARED = "text_config", ("quantization_config", "quantization", "tie_word_embeddings")
_PLAIN = ("lm_head.", "model.embed_tokens.", "model.layers.", "model.norm.")
_INSIDE = ("language_model.", "text_model.")
_HEAD = 256  # of Gemma 4 where a config does not say
_OF_HEAD = re.compile(r"(.+)\.norms\.(\d+)\.(\w+)")
# Of older models: what stands in front of names, and keys with the later ones.
_BARE = r"(transformer\.)?(?=(h|wte|wpe|ln_f|word_embeddings)\.)"
_OLD = re.compile(rf"^({_BARE}|gpt_neox\.|(model\.)?decoder\.)")
LATER = dict.fromkeys(("layers_block_type", "attention_layers"), "layer_types")
LATER |= dict.fromkeys(("n_layer", "num_layers"), "num_hidden_layers")
LATER |= dict.fromkeys(("moe_k", "moe_topk"), "num_experts_per_tok")
LATER |= dict.fromkeys(("n_inner", "ffn_dim", "ffn_hidden_size"), "intermediate_size")
LATER |= {"layer_norm_epsilon": "rms_norm_eps", "attn_layer_indices": "full_attn_idxs"}
LATER |= dict.fromkeys(("n_head", "num_heads"), "num_attention_heads")
LATER |= {"n_embd": "hidden_size", "n_positions": "max_position_embeddings"}
LATER |= {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}
NAKED = ("embed_tokens.", "layers.", "norm.")  # of what has no head, as models of embeddings


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
    if not text_of(dict(values)).get(TEXT) and not any(name.startswith(NAKED) for name in held):
        return {_OLD.sub("model.", n).replace("model.h.", "model.layers."): n for n in held}
    found = {}
    for name in held:
        part = next((part for part in _INSIDE if part in name), "")
        after = name.partition(part)[2] if part else name
        if part or name.startswith(_PLAIN + NAKED):
            plain = after.startswith(("model.", "lm_head."))
            found[after if plain else f"model.{after}"] = name
    return found


def with_later_names(values: dict[str, Any]) -> dict[str, Any]:
    """A config with keys of older models by their later names as well."""
    found = {new: values[old] for old, new in LATER.items() if old in values}
    if "attention_layers" in values:  # of GPT Neo
        values = {**values, "sliding_window": values.get("window_size", 256)}
    if isinstance(kinds := values.get("mlp_layer_types"), list):
        values = {**values, "mlp_layer_types": [int(kind == "sparse") for kind in kinds]}
    return values | {new: value for new, value in found.items() if values.get(new) is None}


def with_wide_heads(values: dict[str, Any]) -> dict[str, Any]:
    """A config whose `per_layer_config` is said by two keys, as files say it that do not have it:
    layers without a window have other heads. `UserError` where it says anything else."""
    given, kinds = values.get("per_layer_config"), values.get("layer_types")
    if "per_layer_config" in values and not given:  # all are alike
        heads = {"num_global_key_value_heads": None}
        return {**values, **heads, "global_head_dim": values.get("head_dim", _HEAD)}
    if not isinstance(given, dict) or not isinstance(kinds, list):
        return values
    first = next(iter(given.values()))
    full = {i for i, kind in enumerate(kinds) if kind == "full_attention"}
    alike = isinstance(first, dict) and all(own == first for own in given.values())
    alike = alike and {int(i) if i.isdigit() else -1 for i in given} == full  # "5" or "05"
    if not alike or first.keys() - {"head_dim", "num_key_value_heads"}:
        raise UserError(f"the config describes no known model: per_layer_config is {given!r:.60}")
    heads = {"num_global_key_value_heads": first.get("num_key_value_heads")}
    return {**values, **heads, "global_head_dim": first.get("head_dim")}


def with_positions(
    values: dict[str, Any], default: dict[str, Any], apart: bool, where: str
) -> dict[str, Any]:
    """A config with all it says of positions as `rope_parameters`, before which `rope_scaling` of
    old files counts: by kinds of layers where those have positions `apart`."""
    given, scaling = values.get("rope_parameters"), values.get("rope_scaling") or {}
    given = default if given is None else given
    kinds = ("full_attention", "sliding_attention") if apart else ()
    plain = {"rope_type": "default"}
    parts = [given.get(kind) or plain for kind in kinds] if isinstance(given, dict) else []
    if not all(isinstance(part, dict) for part in (given, scaling, *parts)):
        what = "rope_parameters or rope_scaling are not as they should be"
        raise UserError(f"the file describes no known model: {what}", location=where)
    if apart:
        given, scaling = dict(zip(kinds, (parts[0] | scaling, parts[1]), strict=True)), {}
    return {**values, "rope_parameters": scaling or given}


def of_heads_together(held: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Norms of each head, `norms.0.weight` and so on, as one tensor [heads, head]."""
    found: dict[str, np.ndarray] = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name, array in held.items():
        if head := _OF_HEAD.fullmatch(name):
            parts.setdefault(f"{head[1]}.{head[3]}", {})[int(head[2])] = array
        else:
            found[name] = array
    for name, heads in parts.items():
        order = sorted(heads)
        if order != list(range(len(order))) or len({a.shape for a in heads.values()}) > 1:
            raise UserError(f"the norms of {name} are not one of each head", location=where)
        found[name] = np.stack([heads[i] for i in order])
    return found
