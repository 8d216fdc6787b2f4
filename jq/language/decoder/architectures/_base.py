"""An architecture as data: what its files call things, and the choices that they imply.

Names of tensors stand for one layer (`{i}`) or one expert (`{e}`); a tensor of a file that no name
here stands for is refused. Sources: `gguf.constants` and the model files of `transformers`, against
which the tests compare names and logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jq.base.errors import InternalError

GGUF = {
    "embed/weight": "token_embd.weight",
    "norm/weight": "output_norm.weight",
    "head/weight": "output.weight",
    "head/bias": "output.bias",
    "layers/{i}/attention/norm/weight": "blk.{i}.attn_norm.weight",
    "layers/{i}/attention/query/weight": "blk.{i}.attn_q.weight",
    "layers/{i}/attention/key/weight": "blk.{i}.attn_k.weight",
    "layers/{i}/attention/value/weight": "blk.{i}.attn_v.weight",
    "layers/{i}/attention/qkv/weight": "blk.{i}.attn_qkv.weight",
    "layers/{i}/attention/output/weight": "blk.{i}.attn_output.weight",
    "layers/{i}/attention/query/bias": "blk.{i}.attn_q.bias",
    "layers/{i}/attention/key/bias": "blk.{i}.attn_k.bias",
    "layers/{i}/attention/value/bias": "blk.{i}.attn_v.bias",
    "layers/{i}/attention/output/bias": "blk.{i}.attn_output.bias",
    "layers/{i}/attention/query_norm/weight": "blk.{i}.attn_q_norm.weight",
    "layers/{i}/attention/key_norm/weight": "blk.{i}.attn_k_norm.weight",
    "layers/{i}/attention/norm_after/weight": "blk.{i}.post_attention_norm.weight",
    "layers/{i}/mlp/norm/weight": "blk.{i}.ffn_norm.weight",
    "layers/{i}/mlp/gate/weight": "blk.{i}.ffn_gate.weight",
    "layers/{i}/mlp/up/weight": "blk.{i}.ffn_up.weight",
    "layers/{i}/mlp/down/weight": "blk.{i}.ffn_down.weight",
    "layers/{i}/mlp/gate/bias": "blk.{i}.ffn_gate.bias",
    "layers/{i}/mlp/up/bias": "blk.{i}.ffn_up.bias",
    "layers/{i}/mlp/down/bias": "blk.{i}.ffn_down.bias",
    "layers/{i}/mlp/norm_after/weight": "blk.{i}.post_ffw_norm.weight",
    "layers/{i}/mlp/router/weight": "blk.{i}.ffn_gate_inp.weight",
    "layers/{i}/mlp/experts/*/gate/weight": "blk.{i}.ffn_gate_exps.weight",
    "layers/{i}/mlp/experts/*/up/weight": "blk.{i}.ffn_up_exps.weight",
    "layers/{i}/mlp/experts/*/down/weight": "blk.{i}.ffn_down_exps.weight",
}
HUGGING_FACE = {
    "embed/weight": "model.embed_tokens.weight",
    "norm/weight": "model.norm.weight",
    "head/weight": "lm_head.weight",
    "layers/{i}/attention/norm/weight": "model.layers.{i}.input_layernorm.weight",
    "layers/{i}/mlp/norm/weight": "model.layers.{i}.post_attention_layernorm.weight",
}
for _ours, _theirs in (
    ("attention/query", "self_attn.q_proj"),
    ("attention/key", "self_attn.k_proj"),
    ("attention/value", "self_attn.v_proj"),
    ("attention/output", "self_attn.o_proj"),
    ("attention/qkv", "self_attn.qkv_proj"),
    ("attention/query_norm", "self_attn.q_norm"),
    ("attention/key_norm", "self_attn.k_norm"),
    ("mlp/gate", "mlp.gate_proj"),
    ("mlp/up", "mlp.up_proj"),
    ("mlp/down", "mlp.down_proj"),
    ("mlp/gate_up", "mlp.gate_up_proj"),
    ("mlp/router", "block_sparse_moe.gate"),
    ("mlp/experts/{e}/gate", "block_sparse_moe.experts.{e}.w1"),
    ("mlp/experts/{e}/down", "block_sparse_moe.experts.{e}.w2"),
    ("mlp/experts/{e}/up", "block_sparse_moe.experts.{e}.w3"),
):
    for _part in ("weight", "bias", "order"):
        HUGGING_FACE[f"layers/{{i}}/{_ours}/{_part}"] = f"model.layers.{{i}}.{_theirs}.{_part}"


@dataclass(frozen=True)
class Architecture:
    """A family of models, known because it is made.

    Attributes:
        name: `general.architecture` of a GGUF file.
        model_types: `model_type` of a `config.json`.
        gguf, hugging_face: our name of a tensor -> the file's.
        activation: of the gate.
        gguf_pairs: see `Config.pairs`; safetensors hold halves.
        normal_shares: see `Config.normal_shares`; of a `config.json` that does not say.
        scaled_embedding: rows of the table are multiplied by sqrt(hidden).
        one_plus: safetensors hold norms as what is added to 1 (GGUF files hold the sum).
        global_every: where windows alternate, each such layer has none; 0 where all are alike.
        window: of a file that names none.
        local_base: base of the rotary positions of layers with a window; 0 for that of the others.
        caps: of scores and logits where the file has none; scores have none where it is 0 here.
        wide_scale_layers: a model of so many layers scales scores by hidden / heads, not by head.
        windows: by model type, which layers of a `config.json` have windows (see `windows.py`),
            and their size where the key is missing; types that are not there have none.
        defaults: numbers that a `config.json` may leave out.
    """

    registry: ClassVar[dict[str, Architecture]] = {}

    name: str
    model_types: tuple[str, ...]
    activation: str = "silu"
    gguf: dict[str, str] = field(default_factory=lambda: GGUF)
    hugging_face: dict[str, str] = field(default_factory=lambda: HUGGING_FACE)
    gguf_pairs: str = "halves"
    normal_shares: bool = True
    scaled_embedding: bool = False
    one_plus: bool = False
    global_every: int = 0
    window: int = 0
    local_base: float = 0.0
    caps: tuple[float, float] = (0.0, 0.0)
    wide_scale_layers: int = 0
    windows: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    defaults: dict[str, float] = field(default_factory=lambda: {"rms_norm_eps": 1e-6})

    def __post_init__(self) -> None:
        if self.name in Architecture.registry:
            raise InternalError(f"two architectures are called {self.name}")
        Architecture.registry[self.name] = self
