"""OLMo 2 and 3: norms behind each block alone, and one norm over all heads of queries or keys."""

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    NORMS_AROUND,
    Architecture,
    without,
)

NO_NORMS = ("attention/norm", "mlp/norm")
BEHIND = without(HUGGING_FACE | NORMS_AROUND, *NO_NORMS)
Architecture(
    "olmo2",
    ("olmo2", "olmo3"),
    gguf=without(GGUF, *NO_NORMS),
    hugging_face=BEHIND,
    own={"norms_of_all_heads": True},
    windows={"olmo3": ("types", 4096)},
    global_every=4,
    plain_windows=True,
    defaults={"rms_norm_eps": 1e-5},
)
