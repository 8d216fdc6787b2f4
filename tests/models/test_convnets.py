"""ResNet and MobileNetV2: the JAX forward pass against the NumPy walk, shapes, sane scales."""

from functools import partial

import jax
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.models import _convnet
from jq.models._tree import flatten
from jq.models.zoo.mobilenet import build as build_mobilenet
from jq.models.zoo.mobilenet import channels
from jq.models.zoo.mobilenet import network as mobilenet_network
from jq.models.zoo.resnet import build as build_resnet
from jq.models.zoo.resnet import network as resnet_network

SMALL = {
    "resnet": partial(resnet_network, depth=14, width=8, classes=10),
    "mobilenet": partial(mobilenet_network, depth=0.25, width=0.25, classes=10),
}


@pytest.mark.parametrize("name", SMALL)
def test_jax_agrees_with_numpy(name):
    """`Initialise` computes the network in NumPy on its way: an independent forward pass."""
    images = _convnet.images(4, 64, seed=5)
    net = _convnet.Initialise(seed=1)
    expected = SMALL[name](net, images)
    fn = jax.jit(partial(_convnet.apply, network=SMALL[name]))
    got = fn(_convnet.nest(net.flat), images)
    np.testing.assert_allclose(got, expected, atol=2e-4)  # scores have unit variance


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)])
@pytest.mark.parametrize("extent", [7, 8])
def test_numpy_convolution_by_definition(size, stride, extent):
    x = np.random.default_rng(0).standard_normal((2, extent, extent, 3)).astype(np.float32)
    net = _convnet.Initialise(seed=0)
    got = net.conv(x, 4, size, stride)
    kernel, edge = net.flat["kernel"], size // 2
    out = (extent + 2 * edge - size) // stride + 1
    expected = np.zeros((2, out, out, 4))
    for y, z, r, c in np.ndindex(out, out, size, size):
        i, j = y * stride + r - edge, z * stride + c - edge
        if 0 <= i < extent and 0 <= j < extent:
            expected[:, y, z] += x[:, i, j] @ kernel[r, c]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_published_parameter_counts():
    """As in torchvision's tables, which leave out means and variances."""
    full = {
        "resnet": partial(resnet_network, depth=50, width=64, classes=1000),
        "mobilenet": partial(mobilenet_network, depth=1.0, width=1.0, classes=1000),
    }
    counts = {}
    for name, network in full.items():
        net = _convnet.Initialise(0)
        network(net, _convnet.images(2, 32, seed=0))
        counts[name] = sum(a.size for k, a in net.flat.items() if k[-4:] not in ("mean", "/var"))
    assert counts == {"resnet": 25_557_032, "mobilenet": 3_504_872}


def test_parameter_names():
    names = flatten(build_resnet(depth=14, width=8, image=32).params).keys()
    assert "stage3/block0/spatial/conv/kernel" in names
    norm = {"mean", "var", "gamma", "beta"}
    assert {n.rsplit("/")[-1] for n in names if n.startswith("stem/norm/")} == norm


@pytest.mark.parametrize(
    "build",
    [partial(build_resnet, depth=14, width=8), partial(build_mobilenet, depth=0.25, width=0.25)],
)
def test_scores_have_unit_scale_and_tell_images_apart(build):
    model = build(image=64, classes=50)
    (images,) = model.example_inputs
    assert images.shape == (1, 64, 64, 3)
    evaluation = model.evaluation()
    assert len(evaluation) == 32
    assert len(model.calibration()) == 16
    fn = jax.jit(model.fn)
    scores = np.concatenate([fn(model.params, *batch) for batch in evaluation])
    assert 0.5 < scores.std() < 3
    unit = scores / np.linalg.norm(scores, axis=1, keepdims=True)
    alike = (unit @ unit.T)[~np.eye(32, dtype=bool)]
    assert alike.mean() < 0.5


def test_same_seed_same_model():
    first, second = (flatten(build_mobilenet(0.1, 0.1, image=32).params) for _ in range(2))
    for name, array in first.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, second[name])
    other = flatten(build_mobilenet(0.1, 0.1, image=32, seed=1).params)
    assert not np.array_equal(other["stem/conv/kernel"], first["stem/conv/kernel"])


def test_depthwise_is_grouped():
    model = build_mobilenet(depth=0.1, width=0.25, image=32)
    text = jax.jit(model.fn).lower(model.params, *model.example_inputs).as_text()
    assert "feature_group_count = 8" in text
    assert model.params["stage1"]["block0"]["depthwise"]["conv"]["kernel"].shape == (3, 3, 1, 48)


def test_channels_round_to_eight():
    assert [channels(n, 0.75) for n in (32, 16, 24, 96)] == [24, 16, 24, 72]


def test_images_have_structure():
    x = _convnet.images(8, 64, seed=0)
    assert x.dtype == np.float32
    assert np.abs(x.mean(axis=(1, 2, 3))).max() < 1e-5
    assert x.std(axis=(1, 2, 3)).max() <= 1 + 1e-5
    neighbours = np.corrcoef(x[:, 1:].ravel(), x[:, :-1].ravel())[0, 1]
    assert neighbours > 0.5
    colours = np.corrcoef(x[..., 0].ravel(), x[..., 1].ravel())[0, 1]
    assert colours > 0.3


def test_batches_are_whole_and_sets_differ():
    model = build_resnet(depth=14, width=8, image=32, batch=3)
    calibration, evaluation = model.calibration(), model.evaluation()
    assert [b[0].shape for b in calibration] == [(3, 32, 32, 3)] * 6
    seen = {image.tobytes() for (b,) in (*calibration, *evaluation) for image in b}
    assert len(seen) == 3 * (6 + 11)


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (build_resnet, {"depth": 18}),
        (build_resnet, {"image": 33}),
        (build_resnet, {"width": 0}),
        (build_mobilenet, {"image": 16}),
        (build_mobilenet, {"width": 0.0}),
    ],
)
def test_refused_sizes(build, sizes):
    with pytest.raises(UserError):
        build(**sizes)
