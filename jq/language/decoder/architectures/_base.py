"""An architecture as data: what its files call things, and the choices that they imply.

Names of tensors stand for one layer (`{i}`) or one expert (`{e}`); a tensor of a file that no name
here stands for is refused. Sources: `gguf.constants` and the model files of `transformers`, against
which the tests compare names and logits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from jq.base.errors import InternalError


def _names(layer: str, parts: Sequence[str], lines: Sequence[str]) -> dict[str, str]:
    """Our names of a layer's tensors and a file's, by words: `ours=theirs` is a tensor with its
    `parts`, `ours/part:theirs` one that the file names without a part."""
    found = {}
    for word in " ".join(lines).split():
        ours, sign, theirs = re.split("([=:])", word)
        for part in [f"/{part}" for part in parts] if sign == "=" else [""]:
            name = f"{layer}.{theirs}{part.replace('/', '.')}"
            found[f"layers/{{i}}/{ours}{part}"] = name
    return found


def hugging_face(*names: str) -> dict[str, str]:
    """Names of a layer's tensors in a folder of Hugging Face, with orders of columns."""
    return _names("model.layers.{i}", ("weight", "bias", "order"), names)


def gated(ours: str, front: str, ends: str = "gate_proj up_proj down_proj") -> str:
    """Names, as `hugging_face` takes them, of a feed-forward layer's three products."""
    pairs = zip(("gate", "up", "down"), ends.split(), strict=True)
    return " ".join(f"{ours}/{own}={front}{end}" for own, end in pairs)


HUGGING_FACE = {
    "embed/weight": "model.embed_tokens.weight",
    "norm/weight": "model.norm.weight",
    "norm/bias": "model.norm.bias",
    "head/weight": "lm_head.weight",
    "head/bias": "lm_head.bias",
} | hugging_face(
    "attention/norm=input_layernorm mlp/norm=post_attention_layernorm",
    "attention/query=self_attn.q_proj attention/key=self_attn.k_proj",
    "attention/value=self_attn.v_proj attention/output=self_attn.o_proj",
    "attention/qkv=self_attn.qkv_proj",
    "attention/query_norm=self_attn.q_norm attention/key_norm=self_attn.k_norm",
    "mlp/gate_up=mlp.gate_up_proj mlp/router=block_sparse_moe.gate",
    gated("mlp", "mlp."),
    gated("mlp/experts/{e}", "block_sparse_moe.experts.{e}.", "w1 w3 w2"),
)


def gguf(*names: str) -> dict[str, str]:
    """Names of a layer's tensors in a GGUF file."""
    return _names("blk.{i}", ("weight", "bias"), names)


def without(names: dict[str, str], *ours: str) -> dict[str, str]:
    """Names without those of some tensors of a layer."""
    left_out = {f"layers/{{i}}/{name}" for name in ours}
    return {name: t for name, t in names.items() if name.rpartition("/")[0] not in left_out}


GGUF = {
    "embed/weight": "token_embd.weight",
    "norm/weight": "output_norm.weight",
    "norm/bias": "output_norm.bias",
    "head/weight": "output.weight",
    "head/bias": "output.bias",
} | gguf(
    "attention/norm=attn_norm attention/query=attn_q attention/key=attn_k attention/value=attn_v",
    "attention/qkv=attn_qkv attention/output=attn_output attention/norm_after=post_attention_norm",
    "attention/query_norm=attn_q_norm attention/key_norm=attn_k_norm",
    "mlp/norm=ffn_norm mlp/gate=ffn_gate mlp/up=ffn_up mlp/down=ffn_down",
    "mlp/norm_after=post_ffw_norm mlp/router=ffn_gate_inp mlp/shared/router=ffn_gate_inp_shexp",
    "mlp/shared/gate=ffn_gate_shexp mlp/shared/up=ffn_up_shexp mlp/shared/down=ffn_down_shexp",
    "mlp/experts/*/gate=ffn_gate_exps mlp/experts/*/up=ffn_up_exps",
    "mlp/experts/*/down=ffn_down_exps",
)
# Experts as most folders name them, and with one that all tokens take.
EXPERTS = hugging_face("mlp/router=mlp.gate", gated("mlp/experts/{e}", "mlp.experts.{e}."))
SHARED_EXPERT = hugging_face(
    gated("mlp/shared", "mlp.shared_expert."), "mlp/shared/router=mlp.shared_expert_gate"
)
NORMS_AROUND = hugging_face(
    "attention/norm_after=post_attention_layernorm mlp/norm=pre_feedforward_layernorm",
    "mlp/norm_after=post_feedforward_layernorm",
)


Get = Callable[..., Any]  # a number, or what else is asked for, by its key and a default


class Key(NamedTuple):
    """The place of a value in files.

    Attributes:
        hugging_face: a key of `config.json`, or what makes it of such: called with what gives a
            number by its key and a default.
        gguf: a key of a GGUF file, behind the architecture's name; likewise.
    """

    hugging_face: str | Callable[[Get], Any]
    gguf: str | Callable[[Get], Any]
    default: Any = None  # of files without it; None where a file must have it

    def read(self, form: int, get: Get) -> Any:
        """The value, of a `config.json` (form 0) or a GGUF file (1)."""
        place = self[form]
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


INTERVAL = "full_attention_interval"
Windows = tuple[str, int | None]
FULL: Windows = ("none", None)


@dataclass(frozen=True)
class Architecture:
    """A family of models, known because it is made.

    Attributes:
        model_types: which layers of a `config.json` have windows (see `huggingface.py`), and their
            size where the key is missing.
        gguf, hugging_face: our name of a tensor -> the file's.
        keys: of a field of `Config`, or of `Config.own`, where files have it; and of the three
            numbers of `Rope.heat`, "heat", "heat_every" and "heat_first": by "listed" `positions`
            of layers that do not turn alone.
        own: fields of `Config`, or of `Config.own`, that are the same in every model.
        mixers: by entry of `layer_types` what mixes tokens there; attention where none is named.
        defaults: values that a file may leave out, by its own keys. By `full_attention_interval`
            the first of `mixers` is in all layers but each such.
        positions: which layers turn queries and keys: "all"; "windows", those with a window where
            any has; "listed", by `no_rope_layers` or but each 4th; "asked", where a file says so.
        only: keys of a `config.json` of which other values are refused.
        scales: products of ours whose results are multiplied, and by what, of a `config.json`.
        activation_key: where a `config.json` names the activation; "" where it is always the same.
    """

    registry: ClassVar[dict[str, Architecture]] = {}

    name: str  # `general.architecture` of a GGUF file
    model_types: dict[str, Windows]  # by `model_type` of a `config.json`
    activation: str = "silu"  # of the gate
    activation_key: str = "hidden_act"
    gguf: dict[str, str] = field(default_factory=lambda: GGUF)
    hugging_face: dict[str, str] = field(default_factory=lambda: HUGGING_FACE)
    keys: dict[str, Key] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    mixers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positions: str = "all"
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    yarn_scale: float | None = None  # see `yarn`; of GGUF files
    swapped: tuple[str, ...] = ()  # names of ours that safetensors hold as [in, out]
    scales: Callable[[Get], dict[str, Any]] | None = None
    truncates: bool = True  # see `yarn`; of GGUF files
    one_plus: bool = False  # safetensors hold norms as what is added to 1 (GGUF files hold the sum)
    global_every: int = 0  # where windows alternate, each such layer has none; 0: all are alike
    local_base: float = 0.0  # of rotary positions of layers with a window; 0: as of the others
    plain_windows: bool = False  # positions of layers with a window are not scaled
    defaults: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in Architecture.registry:
            raise InternalError(f"two architectures are called {self.name}")
        Architecture.registry[self.name] = self

    def like(self, name: str, types: dict[str, Windows], **changes: Any) -> Architecture:
        """Another one, like this but for the changes; `types` are its model types, and keys and
        defaults are added to those of this one."""
        for field_ in ("keys", "defaults"):
            changes[field_] = getattr(self, field_) | changes.get(field_, {})
        return replace(self, name=name, model_types=types, **changes)
