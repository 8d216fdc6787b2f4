"""EXAONE 4: norms behind each block alone; layers without a window do not turn."""

from jq.language.decoder.architectures._base import GGUF, Architecture, without
from jq.language.decoder.architectures.olmo2 import BEHIND, NO_NORMS

Architecture(
    "exaone4",
    ("exaone4",),
    gguf=without(GGUF, *NO_NORMS),
    hugging_face=BEHIND,
    windows={"exaone4": ("types", None)},
    global_every=4,
    positions="windows",
    defaults={"rms_norm_eps": 1e-5},
)
