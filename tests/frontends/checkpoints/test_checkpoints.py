"""Checkpoints that are quantized already stand for the weights that their writers meant."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from jq.base.errors import UserError
from jq.formats.tensor import QuantizedTensor
from jq.frontends.safetensors import read_file
from jq.language.decoder import load_decoder
from tests.language.decoder.test_decoder import TOLERANCE, logits_of
from tests.support.checkpoints import LAYOUTS, mlx, write_checkpoint
from tests.support.decoders import CASES, write_folder

CASE = "llama"
FORMATS = {
    "gptq": "uint4",
    "gptq-2": "uint2",
    "gptq-8-channel": "uint8",
    "awq": "uint4",
    "packed-8": "uint8",
    "floats": "float8_e4m3fn",
    "fp8": "float8_e4m3fn",
    "nvfp4": "nvfp4",
    "nf4": "nf4",
    "int8": "int8",
    "mlx": "q4_1",
    "mlx-5": "q5_1",
    "mlx-mxfp4": "mxfp4",
}


def leaf(decoder, name):
    node = decoder.params
    for part in name.split("/"):
        node = node[part]
    return node


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_are_those_that_were_meant(layout, tmp_path):
    """Decoded, they are the float32 numbers of the definition."""
    floats = write_checkpoint(CASE, layout, tmp_path)
    decoder = load_decoder(tmp_path)
    for ours, theirs in (("attention/key", "self_attn.k_proj"), ("mlp/down", "mlp.down_proj")):
        found = leaf(decoder, f"layers/1/{ours}")
        want = floats[f"model.layers.1.{theirs}.weight"]
        assert isinstance(found["weight"], QuantizedTensor)
        want = want[:, found["order"]] if "order" in found else want
        # The factor of nvfp4 is a division there and a product here.
        assert np.allclose(found["weight"].decode(), want, rtol=2**-22, atol=0)
        if layout in FORMATS:
            assert found["weight"].encoding.format == FORMATS[layout]
    assert ("order" in found) == layout.startswith("gptq-act-order")


def test_columns_in_another_order_meet_their_activations(tmp_path):
    """Logits of the same checkpoint in float32, which its writer decoded."""
    floats = write_checkpoint(CASE, "gptq-act-order", tmp_path / "quantized")
    folder = write_folder(CASE, tmp_path / "plain")
    save_file(floats, folder / "model.safetensors")
    tokens = CASES[CASE]["tokens"]
    got, want = (logits_of(load_decoder(tmp_path / n), tokens) for n in ("quantized", "plain"))
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


def test_the_middle_of_the_codes_is_no_zero_point(tmp_path):
    write_checkpoint(CASE, "gptq-symmetric", tmp_path / "model")
    stored = leaf(load_decoder(tmp_path / "model"), "layers/0/mlp/up")["weight"]
    assert stored.encoding.scheme == "symmetric"
    assert set(stored.parts) == {"codes", "scale"}


def test_nothing_is_read_before_it_is_asked_for(tmp_path):
    """A model that is compiled already needs no codes."""
    write_checkpoint(CASE, "awq", tmp_path / "model")
    stored = leaf(load_decoder(tmp_path / "model"), "layers/0/mlp/up")["weight"]
    assert not stored.parts._made.cache_info().misses
    assert stored.parts["codes"].nbytes * 2 == np.prod(stored.shape)
    assert stored.parts["codes"] is stored.parts["codes"]


DAMAGE = {
    "gptq": [
        ("qzeros", lambda t: t[:, :-1]),
        ("qweight", lambda t: t.astype(np.int16)),
        ("scales", lambda t: np.full_like(t, np.nan)),
        ("scales", lambda t: t[:, :0]),
        ("g_idx", lambda t: t * 0),
        ("g_idx", lambda t: t[:-1]),
    ],
    "awq": [("qweight", lambda t: t[:, 1:]), ("scales", lambda t: t.astype(np.int32))],
    "packed-zero-points": [
        ("weight_shape", lambda t: t + 100),
        ("weight_zero_point", lambda t: t[:1]),
        ("weight_scale", lambda t: t[:, :0]),
    ],
    "fp8": [("weight_scale_inv", lambda t: t[:-1]), ("weight", lambda t: t.view(np.int8))],
    "nvfp4": [("weight_scale", lambda t: t[:, 1:])],
    "nf4": [
        ("weight.quant_map", lambda t: t * 2),
        ("weight.nested_absmax", lambda t: t[:0]),
        ("weight.absmax", lambda t: t[1:]),
        ("weight.quant_state.bitsandbytes__nf4", lambda t: t[:-1]),
        ("weight", lambda t: t[2:]),
    ],
    "int8": [("SCB", lambda t: t[1:])],
    "mlx": [
        ("weight", lambda t: t[:, 1:]),
        ("scales", lambda t: t * np.float16(np.nan)),
        ("biases", lambda t: t[1:]),
        ("scales", lambda t: (t + np.float32(1e-7)).astype(np.float32)),
    ],
    "mlx-mxfp4": [("scales", lambda t: t[:, 1:]), ("scales", lambda t: t.astype(np.int32))],
}


@pytest.mark.parametrize(
    ("layout", "part", "change"), [(k, p, c) for k, rows in DAMAGE.items() for p, c in rows]
)
def test_what_does_not_fit_is_refused(layout, part, change, tmp_path):
    write_checkpoint(CASE, layout, tmp_path)
    file, name = tmp_path / "model.safetensors", f"model.layers.0.mlp.up_proj.{part}"
    tensors = read_file(file)
    save_file(tensors | {name: np.ascontiguousarray(change(tensors[name]))}, file)
    with pytest.raises(UserError, match=r"layers\.0\.mlp\.up_proj cannot be read"):
        load_decoder(tmp_path)


@pytest.mark.parametrize("config", [{"quant_method": "hqq"}, {}, "awq"])
def test_other_methods_are_refused(config, tmp_path):
    write_checkpoint(CASE, "awq", tmp_path)
    made = CASES[CASE]["config"] | {"quantization_config": config}
    (tmp_path / "config.json").write_text(json.dumps(made))
    with pytest.raises(UserError, match="quantiz"):
        load_decoder(tmp_path)


@pytest.mark.parametrize(
    "change", [{"bits": 8}, {"group_size": 16}, {"group_size": "64"}, {"mode": "nvfp4"}], ids=str
)
def test_other_forms_of_mlx_are_refused(change, tmp_path):
    write_checkpoint(CASE, "mlx", tmp_path)
    made = CASES[CASE]["config"] | {"quantization": {"group_size": 32, "bits": 4} | change}
    (tmp_path / "config.json").write_text(json.dumps(made))
    with pytest.raises(UserError, match="cannot be read: (codes of 8 bits|groups of|mode 'nvfp4')"):
        load_decoder(tmp_path)


def test_what_mlx_quantizes_besides_runs(tmp_path):
    """The embedding, a module of other bits, and the config twice: logits are those of the float
    weights that the file means."""
    floats = write_checkpoint(CASE, "mlx", tmp_path / "quantized")
    name, odd = "model.embed_tokens", "model.layers.1.mlp.down_proj"
    rng, file = np.random.default_rng(2), tmp_path / "quantized" / "model.safetensors"
    tensors = read_file(file)
    for module, bits in ((name, 4), (odd, 5)):
        own, floats[f"{module}.weight"] = mlx(rng, floats[f"{module}.weight"], bits)
        tensors = tensors | {f"{module}.{part}": array for part, array in own.items()}
    save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()}, file)
    said = {"group_size": 32, "bits": 4, odd: {"group_size": 32, "bits": 5}}
    made = CASES[CASE]["config"] | {"quantization": said, "quantization_config": said}
    (tmp_path / "quantized/config.json").write_text(json.dumps(made))
    folder = write_folder(CASE, tmp_path / "plain")
    save_file({n: np.ascontiguousarray(a) for n, a in floats.items()}, folder / "model.safetensors")
    tokens = CASES[CASE]["tokens"]
    got, want = (logits_of(load_decoder(tmp_path / n), tokens) for n in ("quantized", "plain"))
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()
