"""Names of tensors, of one layer (`{i}`) or one expert (`{e}`): ours, a GGUF file's, and those of a
folder of Hugging Face; `*` in ours is for a tensor that holds those of all experts. A tensor of a
file that no name here stands for is refused."""

import re
from typing import NamedTuple

# By form: what stands in front of the name of a layer's tensor, and the parts that one has.
_FORMS = (("blk.{i}.", ("weight", "bias")), ("model.layers.{i}.", ("weight", "bias", "order")))


class Names(NamedTuple):
    """Our name of a tensor -> the name in a file, of each form of files."""

    gguf: dict[str, str]
    hugging_face: dict[str, str]

    def but(self, *words: str) -> "Names":
        """The same but for those that words say: `ours=gguf,hf` is a tensor of a layer with its
        parts, `ours/part:gguf,hf` one that files name without a part, `/ours/part:gguf,hf` one that
        belongs to no layer. A form that has no name there stays as it is; `-` takes a name away."""
        found = Names(dict(self.gguf), dict(self.hugging_face))
        for word in " ".join(words).split():
            ours, sign, theirs = re.split("([=:])", word, maxsplit=1)
            for names, their, (front, parts) in zip(found, theirs.split(","), _FORMS, strict=True):
                for part in (f"/{part}" for part in parts) if sign == "=" else ("",):
                    of_layer = not ours.startswith("/")
                    own = f"layers/{{i}}/{ours}{part}" if of_layer else ours[1:]
                    if their == "-":
                        names.pop(own, None)
                    elif their:
                        names[own] = f"{front * of_layer}{their}{part.replace('/', '.')}"
        return found


def gated(ours: str, front: str, ends: str = "gate_proj up_proj down_proj") -> str:
    """Words of a feed-forward layer's three products in a folder."""
    pairs = zip(("gate", "up", "down"), ends.split(), strict=True)
    return " ".join(f"{ours}/{own}=,{front}{end}" for own, end in pairs)


ALL = Names({}, {}).but(
    "/embed/weight:token_embd.weight,model.embed_tokens.weight",
    "/norm/weight:output_norm.weight,model.norm.weight /norm/bias:output_norm.bias,model.norm.bias",
    "/head/weight:output.weight,lm_head.weight /head/bias:output.bias,lm_head.bias",
    "attention/norm=attn_norm,input_layernorm attention/norm_after=post_attention_norm,",
    "attention/query=attn_q,self_attn.q_proj attention/key=attn_k,self_attn.k_proj",
    "attention/value=attn_v,self_attn.v_proj attention/output=attn_output,self_attn.o_proj",
    "attention/qkv=attn_qkv,self_attn.qkv_proj attention/query_norm=attn_q_norm,self_attn.q_norm",
    "attention/key_norm=attn_k_norm,self_attn.k_norm mlp/norm=ffn_norm,post_attention_layernorm",
    "mlp/gate=ffn_gate,mlp.gate_proj mlp/up=ffn_up,mlp.up_proj mlp/down=ffn_down,mlp.down_proj",
    "mlp/gate_up=,mlp.gate_up_proj mlp/norm_after=post_ffw_norm,",
    "mlp/router=ffn_gate_inp,block_sparse_moe.gate mlp/shared/router=ffn_gate_inp_shexp,",
    "mlp/shared/gate=ffn_gate_shexp, mlp/shared/up=ffn_up_shexp, mlp/shared/down=ffn_down_shexp,",
    "mlp/experts/*/gate=ffn_gate_exps, mlp/experts/*/up=ffn_up_exps,",
    "mlp/experts/*/down=ffn_down_exps,",
    gated("mlp/experts/{e}", "block_sparse_moe.experts.{e}.", "w1 w3 w2"),
)
# Experts as most folders name them, and with one that all tokens take.
EXPERTS = "mlp/router=,mlp.gate " + gated("mlp/experts/{e}", "mlp.experts.{e}.")
SHARED_EXPERT = "mlp/shared/router=,mlp.shared_expert_gate "
SHARED_EXPERT += gated("mlp/shared", "mlp.shared_expert.")
NORMS_AROUND = (
    "attention/norm_after=,post_attention_layernorm mlp/norm=,pre_feedforward_layernorm"
    " mlp/norm_after=,post_feedforward_layernorm"
)
# Norms behind each block alone.
BEHIND = ALL.but(NORMS_AROUND, "attention/norm=-,- mlp/norm=-,-")
# The norm in front of the feed-forward layer, as some GGUF files name it.
NORM_BETWEEN = "attention/norm_after=-, mlp/norm=post_attention_norm,"
NO_GATE = "mlp/gate=-,-"
CURVE = ("alpha_p", "alpha_n", "beta", "eps")  # what an activation has learned, in a folder
# Gate and up are one tensor, under the name of the second.
GATE_UP = "mlp/gate=-, mlp/up=-, mlp/gate_up=ffn_up,"
# Stacks that safetensors may hold as [in, out].
STACKS = ("mlp/experts/*/gate_up", "mlp/experts/*/down")
STACKED = " ".join(f"{n}/weight:,mlp.experts.{n.split('/')[-1]}_proj" for n in STACKS)
