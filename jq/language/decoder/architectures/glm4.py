"""GLM 4: norms around each block, half of each head turned, neighbours together."""

from dataclasses import replace

from jq.language.decoder.architectures._base import GGUF, HUGGING_FACE, Architecture, hugging_face
from jq.language.decoder.architectures.phi3 import without_gate

_AROUND = hugging_face(
    "attention/norm_after=post_self_attn_layernorm mlp/norm_after=post_mlp_layernorm"
)
_GLM4 = Architecture(
    "glm4",
    ("glm4",),
    gguf=without_gate(GGUF),
    hugging_face=HUGGING_FACE | _AROUND,
    gguf_pairs="neighbours",
    pairs="neighbours",
    defaults={"rms_norm_eps": 1.5625e-07, "head_dim": 128, "partial_rotary_factor": 0.5},
)
replace(_GLM4, name="glm", model_types=("glm",), gguf={}, hugging_face=HUGGING_FACE)
