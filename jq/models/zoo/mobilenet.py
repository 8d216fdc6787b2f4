"""MobileNetV2 image classifier (depthwise convolutions, ReLU6) with random weights.

Sandler et al. 2018, table 2."""

import math
from functools import partial

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.models._convnet import Net, Tensor, classifier, conv_norm

# expansion, channels, blocks, stride of the first block
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def channels(count: int, width: float) -> int:
    """The multiple of 8 nearest to `count * width`, at least 8 and not below nine tenths."""
    nearest = max(8, int(count * width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * count * width else nearest + 8


def network(net: Net, x: Tensor, *, depth: float, width: float, classes: int) -> Tensor:
    """Images [n, h, w, 3] -> scores [n, classes]."""
    with net.scope("stem"):
        x = conv_norm(net, x, channels(32, width), size=3, stride=2, high=6)
    for stage, (expansion, features, count, stride) in enumerate(STAGES):
        for i in range(math.ceil(count * depth)):
            with net.scope(f"stage{stage}"), net.scope(f"block{i}"):
                x = _block(net, x, expansion, channels(features, width), 1 if i else stride)
    with net.scope("last"):
        x = conv_norm(net, x, channels(1280, max(width, 1.0)), high=6)
    with net.scope("head"):
        return net.classify(x, classes)


def _block(net: Net, x: Tensor, expansion: int, features: int, stride: int) -> Tensor:
    """Inverted residual: 1x1 up, 3x3 depthwise, 1x1 down without activation."""
    y = x
    if expansion != 1:
        with net.scope("expand"):
            y = conv_norm(net, y, expansion * x.shape[-1], high=6)
    with net.scope("depthwise"):
        with net.scope("conv"):
            y = net.depthwise(y, 3, stride)
        with net.scope("norm"):
            y = net.clip(net.norm(y), 6)
    residual = stride == 1 and features == x.shape[-1]
    with net.scope("project"):
        y = conv_norm(net, y, features, gain=0.5 if residual else 1.0)
    return x + y if residual else y


def build(
    depth: float = 1.0,
    width: float = 1.0,
    image: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
) -> Model:
    """`depth` multiplies the blocks of a stage (rounded up), `width` the channels.

    Calibration is 16 images, evaluation 32 others."""
    if image < 32 or image % 32 or min(batch, classes) < 1 or depth <= 0 or width <= 0:
        raise UserError("mobilenet takes images of a multiple of 32, positive depth, width, batch")
    layers = partial(network, depth=depth, width=width, classes=classes)
    return classifier("mobilenet", layers, image, batch, seed)
