"""What a `config.json` and the tensors beside it say of a model, where the two differ."""

import re
from collections.abc import Mapping
from typing import Any

from jq.base.errors import UserError
from jq.language.decoder.architectures._base import LISTED, ROUTED
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.reading import Reader
from jq.language.decoder.text import LATER

# By what a message names, the key that asks for it.
_ASKED = {r"layers/\d+ are missing": "num_hidden_layers", "latent/query": "q_lora_rank"}
_COUNTED = r"experts\.|a stack of|layers of \d+ experts"
_MIXED = r"/(attention|latent|mamba|delta|convolution)\b"


def with_key(error: UserError, reader: Reader, values: Mapping[str, Any]) -> UserError:
    """An error about tensors with the key of the config that asks for them, where one is known."""
    known = reader.known
    counts = [key for key in known.experts if key in values]
    asked = {**_ASKED, _COUNTED: (counts or known.experts)[0]}
    asked["(query|key)_norm"] = known.switches.get("norms", ("",))[0]
    asked[_MIXED] = "layer_types" if any(known.mixers) else ""
    key = next((key for named, key in asked.items() if re.search(named, error.message)), "")
    if not key:
        return error
    value = reader.value(key)
    hint = f"{key} is {value!r:.60} in the config"
    if values.get(key) is None:
        names = " or ".join([key, *(old for old, new in LATER.items() if new == key)])
        hint = f"the config says no {names}" + f", so {value!r:.60} by default" * (
            value is not None
        )
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
