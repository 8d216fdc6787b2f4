"""Differences between a `config.json` and the tensors beside it."""

import re
from collections.abc import Mapping
from typing import Any

from jq.base.errors import UserError
from jq.language.decoder.architectures._base import LISTED, ROUTED
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.reading import Reader
from jq.language.decoder.text import LATER

# By what a message says of tensors, the keys that ask for them so.
_ASKED = {
    r"layers/\d+ are missing": "num_hidden_layers",
    r"layers of \d+ experts|experts\..* has no place": "num_hidden_layers num_experts",
    r"experts\.|a stack of|router has shape": "num_experts",
    "has no place": "num_hidden_layers",
    "latent/query.* missing": "q_lora_rank",
    "latent/.* shape": "num_attention_heads q_lora_rank kv_lora_rank qk_nope_head_dim"
    " qk_rope_head_dim v_head_dim",
    "mamba/.* shape": "mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv",
    r"attention/\w+ has shape": "num_attention_heads num_key_value_heads head_dim",
}
_MIXED = r"/(attention|latent|mamba|delta|convolution)\b.* missing"


def with_key(error: UserError, reader: Reader, values: Mapping[str, Any]) -> UserError:
    """An error about tensors with the keys of the config that ask for them, where it is known."""
    asked = {**_ASKED, "(query|key)_norm are": reader.known.switches.get("norms", ("",))[0]}
    asked[_MIXED] = "layer_types" if any(reader.known.mixers) else ""
    keys = next((keys for said, keys in asked.items() if re.search(said, error.message)), "")
    told = []
    for key in keys.split():
        older = (old for old, new in LATER.items() if new == key)
        names = reader.known.experts if key == "num_experts" else (key, *older)
        stated = [name for name in names if values.get(name) is not None]
        value = "null" if (found := reader.value(key)) is None else f"{found!r:.60}"
        told.append(f"{' or '.join(stated or names)} is {value}" + " by default" * (not stated))
    hint = f"in the config {', '.join(told)}" if told else error.hint
    return UserError(error.message, location=error.location, hint=hint)


def check_experts(
    reader: Reader, values: Mapping[str, Any], config: Config, tree: Mapping[str, Any]
) -> None:
    """`UserError` where a layer has experts and by the config it has none, or the reverse."""
    rule = reader.known.default(values["model_type"], "routed") or {}
    for i in range(config.layers):
        with numbers(reader.wrong):
            asked = config.experts > 0 and _routed(reader, rule, i)
        if asked != ("experts" in tree["layers"][str(i)]["mlp"]):
            by = " or ".join(key for key in rule if " " not in key) or reader.known.experts[0]
            has = ("no experts, and the files have some", "experts, and the files have none")
            raise reader.wrong(f"by {by} layer {i} has {has[asked]}")


def _routed(reader: Reader, rule: Mapping[str, Any], i: int) -> bool:
    held = {key: reader.get(key, default) for key, default in rule.items()}
    listed = [key for key, default in rule.items() if default == LISTED != held[key]]
    return all(ROUTED[key](held[key], i) for key in listed or rule if held[key] != LISTED)
