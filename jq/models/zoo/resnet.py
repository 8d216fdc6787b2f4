"""ResNet-50 v1.5 image classifier with random weights, for speed and coverage.

He et al. 2016, with the stride in the 3x3 convolution of a block (v1.5)."""

from functools import partial

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.models._convnet import Net, Tensor, classifier, conv_norm

BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
EXPANSION = 4


def network(net: Net, x: Tensor, *, depth: int, width: int, classes: int) -> Tensor:
    """Images [n, h, w, 3] -> scores [n, classes]."""
    with net.scope("stem"):
        x = net.max_pool(net.clip(conv_norm(net, x, width, 7, 2)))
    for stage, count in enumerate(BLOCKS[depth]):
        for i in range(count):
            stride = 2 if stage > 0 and i == 0 else 1
            with net.scope(f"stage{stage}"), net.scope(f"block{i}"):
                x = _block(net, x, width << stage, stride, project=i == 0)
    with net.scope("head"):
        return net.classify(x, classes)


def _block(net: Net, x: Tensor, width: int, stride: int, *, project: bool) -> Tensor:
    """1x1 down, 3x3, 1x1 up, added to the block's input (projected when its shape changes)."""
    shortcut = x
    if project:
        with net.scope("shortcut"):
            shortcut = conv_norm(net, x, EXPANSION * width, 1, stride)
    with net.scope("reduce"):
        y = net.clip(conv_norm(net, x, width, 1))
    with net.scope("spatial"):
        y = net.clip(conv_norm(net, y, width, 3, stride))
    with net.scope("expand"):
        y = conv_norm(net, y, EXPANSION * width, 1, gain=0.5)
    return net.clip(shortcut + y)


def build(
    depth: int = 50,
    width: int = 64,
    image: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
) -> Model:
    """`depth` layers (14, 26, 50 or 101), `width` channels in the first stage.

    Calibration is 16 images, evaluation 32 others."""
    if depth not in BLOCKS:
        raise UserError(f"no resnet of depth {depth}", hint=f"known: {', '.join(map(str, BLOCKS))}")
    if image < 32 or image % 32 or min(width, batch, classes) < 1:
        raise UserError("resnet takes images of a multiple of 32, positive width, batch, classes")
    layers = partial(network, depth=depth, width=width, classes=classes)
    return classifier("resnet", layers, image, batch, seed)
