"""Checkpoints of Hugging Face with codes of 4 bits, fitted to a text."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models

from jq.base.errors import UserError
from jq.formats.base import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.frontends.safetensors import read_folder
from jq.language.decoder import layerwise, load_decoder
from jq.language.fitted_folder import fit_folder
from jq.models._tree import flatten
from tests.support.decoders import weights, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a tokenizer of letters."""
    path = write_folder("mixtral", tmp_path_factory.mktemp("folder") / "in")
    letters = {chr(ord("a") + i): 3 + i for i in range(26)}
    made = Tokenizer(models.BPE({"<unk>": 0} | letters, [], unk_token="<unk>"))
    made.decoder = decoders.Fuse()
    made.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(np.random.default_rng(0).choice(list("abcdefgh"), 600)))
    return path


@pytest.fixture(scope="module")
def made(folder, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("folder") / "out"
    fit_folder(folder, out, [text], limit=2)
    return out


def test_products_change_less_than_by_rounding(made):
    """Measured on what comes into the first layer, which nothing before it has changed."""
    after = load_decoder(made)
    state = weights("mixtral")
    x = state["model.embed_tokens.weight"][3:11]
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x = x * state["model.layers.0.input_layernorm.weight"]
    for name, theirs in (("query", "q_proj"), ("value", "v_proj")):
        stored = after.params["layers"]["0"]["attention"][name]["weight"]
        assert isinstance(stored, QuantizedTensor)
        assert stored.encoding.format == "uint4"
        assert stored.encoding.scheme == "symmetric"
        want = state[f"model.layers.0.self_attn.{theirs}.weight"]
        enc = Encoding("int4", want.shape, (1, 32), scale_type="float16")
        rounded = get_format("int4").to_numpy(get_format("int4").encode(want, enc), enc)

        def error(found, want=want):
            return float(np.square(x @ (found - want).T).sum())

        assert error(stored.decode()) < 0.5 * error(rounded)


class Killed(BaseException):
    """Nobody catches it, as nobody does a kill."""


def test_a_run_that_was_ended_goes_on(folder, made, text, tmp_path):
    out, shares = tmp_path / "out", []

    def progress(stage: str, share: float | None) -> None:
        shares.append(share)
        if len(shares) == 2:
            raise Killed

    with pytest.raises(Killed):
        fit_folder(folder, out, [text], limit=2, progress=progress)
    assert not (out / "config.json").exists()
    with pytest.raises(UserError, match="no run with these options"):
        fit_folder(folder, out, [text], limit=1)
    count = fit_folder(folder, out, [text], limit=2, progress=progress).quantized
    assert shares == [0.5, 1.0, 1.0]  # the first layer was not done again
    assert count == 2 * (4 + 3 * 4)
    assert {p.name for p in out.iterdir()} == {p.name for p in made.iterdir()}
    for path in made.glob("*.safetensors"):
        assert path.read_bytes() == (out / path.name).read_bytes()


def test_a_run_goes_on_where_names_begin_with_the_layer(folder, text, tmp_path):
    """As those of a model without a head do."""
    source, out, other = (tmp_path / name for name in ("in", "out", "other"))
    shutil.copytree(folder, source)
    tensors = {n.removeprefix("model."): a for n, a in weights("mixtral").items()}
    tensors.pop("lm_head.weight")
    save_file(tensors, source / "model.safetensors")
    fit_folder(source, other, [text], limit=1)

    def progress(stage: str, share: float | None) -> None:
        if share == 1:  # of the second of two layers
            raise Killed

    with pytest.raises(Killed):
        fit_folder(source, out, [text], limit=1, progress=progress)
    fit_folder(source, out, [text], limit=1)
    for path in other.glob("*.safetensors"):
        assert path.read_bytes() == (out / path.name).read_bytes()


def test_codes_of_8_bits_for_whole_rows(folder, text, tmp_path):
    count = fit_folder(folder, tmp_path / "out", [text], 1, "int8", 0).quantized
    assert count == 2 * (4 + 3 * 4)  # of two layers, with four experts
    stored = load_decoder(tmp_path / "out").params["layers"]["1"]["attention"]["output"]["weight"]
    want = weights("mixtral")["model.layers.1.self_attn.o_proj.weight"]
    assert stored.encoding.format == "uint8"
    assert np.abs(stored.decode() - want).max() < 0.05 * np.abs(want).max()


def test_what_is_no_product_stays(folder, made):
    before, after = load_decoder(folder).params, load_decoder(made).params
    for path in ("embed/weight", "head/weight", "layers/1/mlp/router/weight", "norm/weight"):
        old, new = before, after
        for part in path.split("/"):
            old, new = old[part], new[part]
        assert np.array_equal(old, new)
    assert (made / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    index = json.loads((made / "model.safetensors.index.json").read_text())["weight_map"]
    files = {"layer-0.safetensors", "layer-1.safetensors", "tables.safetensors"}
    assert set(index.values()) == files


@pytest.mark.parametrize("case", ["granite-experts", "gpt-oss"])
def test_stacks_of_experts_stay(folder, text, tmp_path, case, monkeypatch):
    """The file has them as one tensor, beside matrices that are rounded. What they would aim at is
    not solved for: that takes as long as the rest, for each expert."""
    aims = []

    def aimed(weight, *moments):
        aims.append(weight)
        return weight

    monkeypatch.setattr(layerwise, "aimed", aimed)
    source, out = write_folder(case, tmp_path / "in"), tmp_path / "out"
    shutil.copy(folder / "tokenizer.json", source)
    count = fit_folder(source, out, [text], 1, "int8", 0).quantized
    before, after = read_folder(source), read_folder(out)
    packed = {n.removesuffix("_packed") for n in after if n.endswith(".weight_packed")}
    assert count == len(packed) == len(aims) == 8
    assert {name for name in before if "experts" in name or "block_sparse" in name} - packed
    assert all(np.array_equal(before[name], after[name]) for name in before.keys() - packed)
    load_decoder(out)


def test_the_part_of_a_model_that_makes_text(folder, made, text, tmp_path):
    """Its tensors keep their names, and what sees stays as it is."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    shutil.copy(folder / "tokenizer.json", source)
    config = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "seeing", "text_config": config, "vision_config": {}}
    (source / "config.json").write_text(json.dumps(whole))
    tensors = {f"language_model.{name}": array for name, array in weights("mixtral").items()}
    sees = {"vision_tower.layers.0.weight": np.ones((4, 64), np.float32)}
    save_file(tensors | sees, source / "model.safetensors")
    fit_folder(source, out, [text], limit=2)
    want, found = (flatten(load_decoder(path).params) for path in (made, out))
    assert want.keys() == found.keys()
    for name, leaf in want.items():
        assert np.array_equal(np.asarray(leaf), np.asarray(found[name])), name
    written = read_folder(out)
    assert np.array_equal(written["vision_tower.layers.0.weight"], np.ones((4, 64)))
    packed = [name for name in written if name.endswith("weight_packed")]
    assert packed and all(name.startswith("language_model.model.layers.") for name in packed)


def test_mistakes_are_refused(folder, made, text, tmp_path):
    with pytest.raises(UserError, match="quantized already"):
        fit_folder(made, tmp_path / "out", [text])
    with pytest.raises(UserError, match="groups of 12"):
        fit_folder(folder, tmp_path / "out", [text], group=12)
    with pytest.raises(UserError, match="not empty"):
        fit_folder(folder, made, [text])
    short = tmp_path / "short.txt"
    short.write_text("ab")
    with pytest.raises(UserError, match="tokens"):
        fit_folder(folder, tmp_path / "out", [short])
    assert not (tmp_path / "out").exists()
