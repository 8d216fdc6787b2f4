"""Phi 3: queries, keys and values are one tensor, gate and up another."""

from jq.language.decoder.architectures._base import GGUF, Architecture


def without_gate(names: dict[str, str]) -> dict[str, str]:
    """Gate and up are one tensor, under the name of the second."""
    gated = ("layers/{i}/mlp/gate/weight", "layers/{i}/mlp/up/weight")
    kept = {ours: theirs for ours, theirs in names.items() if ours not in gated}
    return kept | {"layers/{i}/mlp/gate_up/weight": names["layers/{i}/mlp/up/weight"]}


Architecture("phi3", ("phi3",), gguf=without_gate(GGUF), windows={"phi3": ("all", None)})
