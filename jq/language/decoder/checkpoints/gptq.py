"""GPTQ: `value = scale * (code - zero point)` per group of columns (Frantar et al. 2023).

`qweight` i32 [in * bits / 32, out] holds codes along the columns of the weight, `scales`
[groups, out], `qzeros` i32 [groups, out * bits / 32]; `g_idx` i32 [in] is the group of each column.
Files of the format `gptq` store zero points less 1, those of `gptq_v2` as they are.
Source: the packing and unpacking of AutoGPTQ and GPTQModel.

Where columns were quantized in the order of their importance, those of a group do not stand side by
side: they are brought together, and the activations come in their order.
"""

from collections.abc import Mapping

import numpy as np

from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.checkpoints.words import (
    BITS,
    encoding_of,
    fields,
    order_of,
    parts_of,
    settled,
)
from jq.language.decoder.names import Leaf

_ZERO_LESS = {"gptq": 1, "gptq_v2": 0}


@method("gptq", "qweight", "qzeros scales g_idx")
def read(layer: Layer) -> Mapping[str, Leaf]:
    words, zeros = layer.words("qweight"), layer.words("qzeros")
    groups, out = layer.get("scales", "f", 2).shape
    scale = layer.finite("scales", layer.tensors["scales"]).T
    layer.need("qweight", (len(words), out))
    bits = next((b for b in BITS if (len(zeros), zeros.shape[1] * 32) == (groups, out * b)), 0)
    if not bits or len(words) * 32 % bits:
        raise layer.wrong(f"qzeros have shape {list(zeros.shape)}, scales {[groups, out]}")
    columns = len(words) * 32 // bits
    kind = layer.config.get("checkpoint_format") or "gptq"
    if not isinstance(kind, str) or kind not in _ZERO_LESS:
        raise layer.wrong(f"the format {kind!r:.40} is not known")
    zero = fields(zeros, bits, out, straddle=True) + np.uint8(_ZERO_LESS[kind])
    zero = (zero & np.uint8((1 << bits) - 1)).T
    encoding = settled(encoding_of(layer, bits, (out, columns), scale), bits, zero)
    order = order_of(layer, "g_idx", columns, groups)

    def make() -> Mapping[str, np.ndarray]:
        codes = fields(words.T, bits, columns, straddle=True)
        return parts_of(encoding, codes if order is None else codes[:, order], scale, zero)

    found: dict[str, Leaf] = {"weight": layer.stored(encoding, make)}
    return found if order is None else found | {"order": order}
