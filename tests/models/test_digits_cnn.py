"""The digits network: its splits, its accuracy, its forward pass against NumPy."""

import jax
import numpy as np
import pytest

import jq.models
from jq.base.errors import UserError
from jq.models.zoo.digits_cnn import accuracy, build, forward, half_shifts, initial, splits


@pytest.fixture(scope="module")
def model():
    return jq.models.digits_cnn


def test_accuracy_on_held_out_images(model):
    fn = jax.jit(model.fn)
    outputs = np.stack([fn(model.params, *batch) for batch in model.evaluation()])
    assert outputs.shape == (17, 32, 10)
    assert model.metric(outputs, model.labels())["accuracy"] >= 0.98


def test_splits_share_no_image(model):
    train, train_labels, test, test_labels = splits()
    assert len(train) == len(train_labels) == 1253
    assert len(test) == len(test_labels) == 544
    assert not {i.tobytes() for i in train} & {i.tobytes() for i in test}
    seen = np.concatenate([images for (images,) in model.calibration()])
    assert len(seen) == 128
    assert {i.tobytes() for i in seen} <= {i.tobytes() for i in train}
    covered = np.concatenate([images for (images,) in model.evaluation()])
    np.testing.assert_array_equal(covered, test)


def test_forward_against_numpy():
    params = initial(width=2, seed=3)
    x = np.random.default_rng(0).random((2, 8, 8, 1), np.float32)
    got = forward(params, x)
    y = x.astype(np.float64)
    for i, stride in enumerate((1, 2, 1)):
        p = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)))
        n = y.shape[1]
        taps = [
            p[:, r : r + n, c : c + n] @ params[f"conv{i}"]["kernel"][r, c]
            for r in range(3)
            for c in range(3)
        ]
        y = np.maximum(sum(taps), 0)[:, ::stride, ::stride]
    y = y.reshape(2, 2, 2, 2, 2, 8).max(axis=(2, 4)).reshape(2, -1) @ params["dense"]["kernel"]
    np.testing.assert_allclose(got, y, rtol=1e-5, atol=1e-5)


def test_accuracy_takes_stacked_or_concatenated_outputs():
    scores = np.eye(10, dtype=np.float32)[[1, 2, 3, 4]]
    labels = np.array([1, 2, 0, 4])
    assert accuracy(scores, labels) == accuracy(scores.reshape(2, 2, 10), labels)
    assert accuracy(scores, labels) == {"accuracy": 0.75}


def test_half_shifts_move_by_half_a_pixel():
    image = np.zeros((1, 8, 8, 1), np.float32)
    image[0, 4, 4] = 1
    shifted = half_shifts(image)
    assert shifted.shape == (9, 8, 8, 1)
    np.testing.assert_array_equal(shifted[0], image[0])
    np.testing.assert_array_equal(shifted[1, [4, 5], [4, 5], 0], 0.5)


def test_batch_must_divide_the_test_set():
    with pytest.raises(UserError, match="544"):
        build(batch=100)
