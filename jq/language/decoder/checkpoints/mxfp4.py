"""gpt-oss's experts: blocks of 32 e2m1 numbers that share a power of two.

`NAME_blocks` u8 [experts, out, in / 32, 16] holds two numbers a byte, the first in the low bits;
`NAME_scales` u8 [experts, out, in / 32] exponents with a bias of 127. Source: the OCP Microscaling
specification 1.0, and the reading of such tensors in `transformers`.
"""

from collections.abc import Mapping

import numpy as np

from jq.formats.base import Encoding
from jq.language.decoder.checkpoints.method import Layer, method
from jq.language.decoder.names import Leaf

_BLOCK, _NAN = 32, 255


@method("mxfp4", "blocks scales", "", joint="_")
def read(layer: Layer) -> Mapping[str, Leaf]:
    blocks, scales = layer.get("blocks", "u", 4), layer.get("scales", "u", 3)
    if blocks.dtype != np.uint8 or scales.dtype != np.uint8:
        raise layer.wrong(f"blocks are {blocks.dtype.name}, scales {scales.dtype.name}")
    experts, out, groups = scales.shape
    layer.need("blocks", (experts, out, groups, _BLOCK // 2))
    if (scales == _NAN).any():
        raise layer.wrong("scales hold NaN")
    shape = (experts, out, groups * _BLOCK)
    parts = {"codes": blocks.reshape(experts, out, -1).view(np.int8), "scale": scales.view(np.int8)}
    return {"": layer.stored(Encoding("mxfp4", shape, (1, 1, _BLOCK)), lambda: parts)}
