"""AWQ: `value = scale * (code - zero point)` per group of columns (Lin et al. 2023).

`qweight` i32 [in, out / 8] holds codes of 4 bits along the rows of the weight, eight rows a word in
the order 0 2 4 6 1 3 5 7; `qzeros` i32 [groups, out / 8] likewise; `scales` [groups, out]. Source:
the packing of AutoAWQ's version `gemm`.
"""

from collections.abc import Mapping

import numpy as np

from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.checkpoints.words import encoding_of, fields, parts_of, settled
from jq.language.decoder.names import Leaf

_PLACE = (0, 4, 1, 5, 2, 6, 3, 7)  # of each row in its word


@method("awq", "qweight", "qzeros scales")
def read(layer: Layer) -> Mapping[str, Leaf]:
    version, bits = str(layer.config.get("version", "gemm")).lower(), layer.config.get("bits", 4)
    if version != "gemm" or bits != 4:
        raise layer.wrong(f"version {version!r} of {bits} bits is not known, 'gemm' of 4 is")
    words, zeros = layer.words("qweight"), layer.words("qzeros")
    groups, out = layer.get("scales", "f", 2).shape
    scale = layer.finite("scales", layer.tensors["scales"]).T
    layer.need("qweight", (len(words), out // 8))
    layer.need("qzeros", (groups, out // 8))
    zero = _rows(zeros)
    encoding = settled(encoding_of(layer, 4, (out, len(words)), scale), 4, zero)
    made = layer.stored(encoding, lambda: parts_of(encoding, _rows(words), scale, zero))
    return {"weight": made}


def _rows(words: np.ndarray) -> np.ndarray:
    """Codes u8 [out, n] of words [n, out / 8]."""
    found = fields(words, 4, words.shape[1] * 8)
    return found.reshape(len(words), -1, 8)[..., _PLACE].reshape(len(words), -1).T
