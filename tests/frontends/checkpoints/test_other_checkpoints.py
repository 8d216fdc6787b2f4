"""Checkpoints of gpt-oss, of auto-round and of TensorRT Model Optimizer, by the definitions of what
they hold."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jq.base.errors import UserError
from jq.frontends.checkpoints.method import unpacked_tensors
from jq.language.decoder import load_decoder
from tests.support.decoders import CASES, write_folder

RNG = np.random.default_rng(0)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def numbers(bytes_):
    """The e2m1 numbers of bytes [..., n], the low bits first: [..., 2 n]."""
    both = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1)
    return E2M1[both].reshape(*bytes_.shape[:-1], -1)


def exponents(scales, size):
    return np.repeat(np.exp2(scales.astype(np.float32) - 127), size, axis=-1)


def test_experts_of_gpt_oss(tmp_path):
    """A folder as it is published: stacks of blocks, [experts, out, in], and biases as they are."""
    folder = write_folder("gpt-oss", tmp_path / "model")
    tensors, want = load_file(folder / "model.safetensors"), {}
    for i in range(2):
        for name, shape in (("gate_up_proj", (4, 128, 1)), ("down_proj", (4, 32, 2))):
            stem = f"model.layers.{i}.mlp.experts.{name}"
            blocks = RNG.integers(0, 256, (*shape, 16), np.uint8)
            scales = RNG.integers(118, 126, shape, np.uint8)
            want[stem] = numbers(blocks).reshape(*shape[:2], -1) * exponents(scales, 32)
            del tensors[stem]
            tensors |= {f"{stem}_blocks": blocks, f"{stem}_scales": scales}
    save_file(tensors, folder / "model.safetensors")
    config = CASES["gpt-oss"]["config"] | {"quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(config))
    decoder = load_decoder(folder)
    for i in range(2):
        for e in range(4):
            experts = decoder.params["layers"][str(i)]["mlp"]["experts"][str(e)]
            for ours, theirs in (("gate_up", "gate_up_proj"), ("down", "down_proj")):
                stem = f"model.layers.{i}.mlp.experts.{theirs}"
                got = np.asarray(experts[ours]["weight"], np.float32)
                np.testing.assert_array_equal(got, want[stem][e])
                np.testing.assert_array_equal(experts[ours]["bias"], tensors[f"{stem}_bias"][e])


@pytest.mark.parametrize(
    "change",
    [
        {"w_scales": np.full((2, 4, 2), 255, np.uint8)},
        {"w_blocks": np.zeros((2, 4, 2, 15), np.uint8)},
        {"w_blocks": np.zeros((2, 4, 64), np.uint8)},
        {"w_scales": np.zeros((2, 4, 2), np.float32)},
        {"w_scales": np.zeros((2, 4, 3), np.uint8)},
    ],
)
def test_blocks_that_are_none_are_refused(change):
    tensors = {"w_blocks": np.zeros((2, 4, 2, 16), np.uint8), "w_scales": np.ones((2, 4, 2), "u1")}
    unpacked_tensors({"quant_method": "mxfp4"}, tensors, "here")
    with pytest.raises(UserError, match="weight of w cannot be read"):
        unpacked_tensors({"quant_method": "mxfp4"}, tensors | change, "here")


def test_auto_round_in_the_layout_of_gptq():
    tensors = {
        "a.qweight": RNG.integers(-(2**31), 2**31, (8, 16), np.int32),
        "a.qzeros": RNG.integers(-(2**31), 2**31, (2, 2), np.int32),
        "a.scales": RNG.random((2, 16), np.float32).astype(np.float16),
    }
    config = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4}
    got = unpacked_tensors(config, tensors, "here")["a.weight"]
    want = unpacked_tensors({"quant_method": "gptq"}, tensors, "here")["a.weight"]
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_nvfp4_of_model_optimizer():
    codes = RNG.integers(0, 256, (6, 16), np.uint8)
    scale = (RNG.random((6, 2), np.float32) + 0.5).astype(ml_dtypes.float8_e4m3fn)
    tensors = {"a.weight": codes, "a.weight_scale": scale, "a.input_scale": np.float32([1.0])}
    tensors |= {"a.weight_scale_2": np.float32([0.25]), "b.weight": np.ones((2, 2), np.float32)}
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    found = unpacked_tensors(config, tensors, "here")
    want = numbers(codes) * np.repeat(scale.astype(np.float32), 16, axis=-1) * np.float32(0.25)
    np.testing.assert_allclose(np.asarray(found["a.weight"], np.float32), want, rtol=1e-6)
    assert set(found) == {"a.weight", "b.weight"}
    for name, array in (("a.weight_scale", scale[:, :1]), ("a.weight_scale_2", np.float32([0]))):
        with pytest.raises(UserError, match="weight of a cannot be read"):
            unpacked_tensors(config, tensors | {name: array}, "here")


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "torchao"},
        {"quant_method": "quark"},
        {"quant_method": "auto-round", "packing_format": "auto_round"},
        {"quant_method": "auto-round"},
    ],
)
def test_other_methods_are_refused_by_name(config):
    with pytest.raises(UserError, match=config["quant_method"]):
        unpacked_tensors(config, {"a.weight": np.ones((2, 2), np.float32)}, "here")
