"""An architecture as data: what its files call things, and the choices that they imply.

Sources: `gguf.constants` and the model files of `transformers`, against
which the tests compare names and logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from jq.base.registry import register
from jq.language.decoder.architectures import names

Get = Callable[..., Any]  # a number, or what else is asked for, by its key and a default


class Key(NamedTuple):
    """The place of a value in files.

    Attributes:
        hugging_face: a key of `config.json`, or what makes it of such: called with what gives a
            number by its key and a default.
        gguf: a key of a GGUF file, behind the architecture's name; likewise."""

    hugging_face: str | Callable[[Get], Any]
    gguf: str | Callable[[Get], Any]
    default: Any = None  # of files without it; None where a file must have it

    def read(self, form: str, get: Get) -> Any:
        """The value of files of a form, as the fields name them."""
        place = getattr(self, form)
        return place(get) if callable(place) else get(place, self.default)


def fixed(hugging_face: Any, gguf: Any = None) -> Key:
    """A value that no file says: of GGUF files the same where none is given."""
    other = hugging_face if gguf is None else gguf
    return Key(lambda get: hugging_face, lambda get: other)


RMS = "attention.layer_norm_rms_epsilon"
LAYER = Key("layer_norm_eps", "attention.layer_norm_epsilon", 1e-5)
# Of a router whose file says whether shares add up to 1.
SHARES = Key("norm_topk_prob", "expert_weights_norm", True)
# Fields of `Config` that all have, but for what an architecture says otherwise.
KEYS = {
    "context": Key("max_position_embeddings", "context_length"),
    "epsilon": Key("rms_norm_eps", lambda get: get(RMS), 1e-6),
    "normal_shares": Key(lambda get: True, SHARES.gguf, True),
}

# Tensors of folders that a config turns on or off, and, where an architecture does not say
# otherwise, the key and what its absence means.
SWITCHED = {
    "attention": r"(attention|latent)/(query|key|value|qkv|output|query_down|kv_down)/bias",
    "mlp": r"mlp/(.*/)?(gate|up|gate_up|down)/bias",
    "norms": r"attention/(query|key)_norm/.*",
    "head": r"head/bias",
    "filter": r"mamba/filter/bias",
    "state": r"mamba/input/bias",
    "state_out": r"mamba/output/bias",
    "short": r"convolution/.*/bias",
    "shared": r"mlp/shared/.*",
}
Switch = tuple[str, bool]
NEVER, ALWAYS = ("", False), ("", True)
SWITCHES = {"attention": ("attention_bias", False), "mlp": ("mlp_bias", False)}
SWITCHES |= {"filter": ("mamba_conv_bias", True), "short": ("conv_bias", False), "shared": ALWAYS}
SWITCHES |= dict.fromkeys(("state", "state_out"), ("mamba_proj_bias", False))

# By keys of a `config.json`, True for a layer with experts; what lists layers counts alone.
ROUTED: dict[str, Callable[[Any, int], bool]] = {
    "moe_layers": lambda listed, i: i in listed,
    "mlp_layer_types": lambda sparse, i: bool(sparse[i]),
    "mlp_only_layers": lambda dense, i: i not in dense,
    "moe_layer_end_index": lambda last, i: i <= last or last == -1,
}
_STEPS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "first layer")
ROUTED |= dict.fromkeys(_STEPS, lambda every, i: (i + 1) % every == 0)
ROUTED |= dict.fromkeys(_FIRST, lambda first, i: i >= first)
LISTED = [-1]  # the default of a list that counts alone
STEPS = {"routed": {"decoder_sparse_step": 1, "mlp_only_layers": []}}

INTERVAL = "full_attention_interval"
Windows = tuple[str, int | None]
FULL: Windows = ("none", None)


@cache
def _table() -> dict[tuple[str, str], Any]:
    """Defaults of `transformers` by model type and key; `scripts/oracles` writes the file."""
    rows = json.loads(Path(__file__).with_name("defaults.json").read_text(encoding="utf-8"))
    every = [(key, *pair) for key, row in rows.items() for pair in row.items()]
    return {(kind, key): json.loads(v) for key, v, kinds in every for kind in kinds.split()}


@dataclass(frozen=True)
class Architecture:
    """A family of models, known because it is made.

    Attributes:
        model_types: which layers of a `config.json` have windows (see `huggingface.py`), and their
            size where the key is missing.
        names: of tensors; of GGUF files none where such files are not known.
        keys: of a field of `Config`, or of `Config.own`, where files have it; and of the three
            numbers of `Rope.heat`, "heat", "heat_every" and "heat_first": by "listed" `positions`
            of layers that do not turn alone.
        own: fields of `Config`, or of `Config.own`, that are the same in every model.
        mixers: by entry of `layer_types` what mixes tokens there; attention where none is named.
        defaults: values that a file may leave out, by its own keys. By `full_attention_interval`
            the first of `mixers` is in all layers but each such. `of_type`: those of a model type
            that has others. By `routed` the keys of `ROUTED` that it reads, and their defaults.
        positions: which layers turn queries and keys: "all"; "none"; "windows", those with a
            window; "windowed", likewise where windows have a size; "listed", by `no_rope_layers`
            or but each 4th; "asked", where a file says so.
        switches: by group of `SWITCHED` the key that turns it on, and what its absence means.
        only: keys of a `config.json` of which other values are refused.
        scales: products of ours of which what comes in and what goes out is multiplied, and by
            what, of a `config.json`.
        activation_key: where a `config.json` names the activation; "" where it is always the same.
    """

    registry: ClassVar[dict[str, Architecture]] = {}

    name: str  # `general.architecture` of a GGUF file
    model_types: dict[str, Windows]  # by `model_type` of a `config.json`
    activation: str = "silu"  # of the gate
    activation_key: str = "hidden_act"
    experts: tuple[str, ...] = ("num_experts", "num_local_experts")  # their keys; the first counts
    names: names.Names = names.ALL
    keys: dict[str, Key] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    mixers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positions: str = "all"
    switches: dict[str, Switch] = field(default_factory=dict)
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    yarn_scale: float | None = None  # see `yarn`; of GGUF files
    swapped: tuple[str, ...] = ()  # names of ours that safetensors hold as [in, out]
    swapped_or_not: bool = False  # or as [out, in], where that is the shape
    scales: Callable[[Get], dict[str, Any]] | None = None
    truncates: bool = True  # see `yarn`; of GGUF files
    one_plus: bool = False  # safetensors hold norms as what is added to 1 (GGUF files hold the sum)
    global_every: int = 0  # where windows alternate, each such layer has none; 0: all are alike
    local_base: float = 0.0  # of rotary positions of layers with a window; 0: as of the others
    plain_windows: bool = False  # positions of layers with a window are not scaled
    defaults: dict[str, Any] = field(default_factory=dict)
    of_type: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        register(Architecture.registry, "architecture", self.name, self)

    def default(self, model_type: str, key: str, left_out: bool = True) -> Any:
        """The value of a model type for a key that is null, or as the table has it, `left_out`."""
        own = self.defaults | self.of_type.get(model_type, {})
        return own.get(key, _table().get((model_type, key)) if left_out else None)

    def on(self, group: str, values: Mapping[str, Any]) -> bool:
        """True where the values of a config turn on the tensors of a group."""
        key, absent = (SWITCHES | self.switches).get(group, NEVER)
        own = self.default(values["model_type"], key)
        return bool(values.get(key, absent if own is None else own))

    def like(self, name: str, types: dict[str, Windows], **changes: Any) -> Architecture:
        """Another one, like this but for the changes; `types` are its model types, and keys,
        defaults and switches are added to those of this one."""
        for field_ in ("keys", "defaults", "switches"):
            changes[field_] = getattr(self, field_) | changes.get(field_, {})
        return replace(self, name=name, model_types=types, **changes)
