"""A language model that was compiled ahead generates what the file it came from does."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.cli.app import main
from jq.language.build import write
from jq.language.decoder import load_decoder
from jq.language.programs import capacities
from jq.language.saved import _copy_tokenizer, check_replaceable, checksums, is_saved, load, save
from jq.language.store import MANIFEST, Options, options_for
from tests.support.decoders import write_gguf
from tests.support.keys import keys

CONTEXT = 24


@pytest.fixture(scope="module", autouse=True)
def cheap_programs():
    with pytest.MonkeyPatch.context() as patch:
        for module, builder in (("session", "programs"), ("saved", "saved")):
            patch.setattr(f"jq.language.{module}.COSTS", {1: 1.0, 4: 1.7, 16: 3.35})
            patch.setattr(f"jq.language.{builder}.build", write)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "tiny.gguf"
    return write_gguf("llama-one-head-of-keys", path)


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory):
    decoder, out = load_decoder(file), tmp_path_factory.mktemp("saved") / "out"
    save(decoder, options_for(decoder, None, None, CONTEXT), out)
    return out


def test_it_needs_nothing_but_its_folder(file, folder, tmp_path, monkeypatch):
    prompt = "abcabcabc"  # taken in by the long program and the short one
    given = jq.LanguageModel(file, context=CONTEXT, cache_dir=tmp_path)
    want = given.generate(prompt, 6)
    assert list(want)
    together = given.session().take(given.encode(prompt), every=True)
    monkeypatch.setattr("jq.language.programs.build", None)
    monkeypatch.setattr("jq.language.model.load_decoder", None)
    moved = folder.rename(folder.parent / "moved")
    try:
        model = jq.LanguageModel(moved)
        assert model.config == given.config
        found = model.generate(prompt, 6)
        assert list(found) == want.tokens
        assert found.text == want.text
        assert model.chat([{"role": "user", "content": "abc"}]) == given.encode("abc")
        one_by_one = model.session().take(given.encode(prompt), every=True)
        assert np.array_equal(one_by_one, together)
    finally:
        moved.rename(folder)


def test_templates_in_files_of_their_own_are_kept(tmp_path):
    model, out = tmp_path / "m", tmp_path / "out"
    for name in ("tokenizer.json", "additional_chat_templates/rag.jinja"):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("x")
    out.mkdir()
    _copy_tokenizer(SimpleNamespace(path=model, file=None), out / "tokenizer")
    names = {"tokenizer/tokenizer.json", "tokenizer/additional_chat_templates/rag.jinja"}
    assert checksums(out).keys() == names
    check_replaceable(out)


def test_templates_may_be_links_into_a_cache_and_lead_nowhere_else(tmp_path):
    """As the cache of Hugging Face has them, `snapshots/REVISION` beside `blobs`."""
    model, others = tmp_path / "snapshots" / "a1", tmp_path / "others"
    for folder in (model / "additional_chat_templates", tmp_path / "blobs", others):
        folder.mkdir(parents=True)
    (tmp_path / "blobs" / "f00").write_text("x")
    (others / "rag.jinja").write_text("y")
    path = model / "additional_chat_templates" / "rag.jinja"
    path.symlink_to("../../../blobs/f00")
    decoder = SimpleNamespace(path=model, file=None)
    _copy_tokenizer(decoder, tmp_path / "out")
    assert (tmp_path / "out" / "additional_chat_templates" / "rag.jinja").read_text() == "x"
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(others)
    with pytest.raises(UserError, match="a link out of the model's folder"):
        _copy_tokenizer(decoder, tmp_path / "again")


def test_other_options_are_refused(folder):
    for other in ({"context": 8}, {"cache": "int8"}, {"pipeline": "float"}):
        with pytest.raises(UserError, match=f"compiled for the {next(iter(other))}"):
            jq.LanguageModel(folder, **other)
    assert jq.LanguageModel(folder, context=CONTEXT).options.context == CONTEXT


def test_damage_is_refused(folder, monkeypatch):
    manifest = folder / "language.json"
    text = manifest.read_text()
    document = json.loads(text)
    try:
        for change in (
            {"version": 1},
            {"config": {}},
            {"options": {"pipelines": 1}},
            {"config": {**document["config"], "ropes": [1]}},
        ):
            manifest.write_text(json.dumps(document | change))
            with pytest.raises(UserError, match="language model"):
                jq.LanguageModel(folder)
        manifest.write_text(text)
        described = folder / "1x32.json"
        whole = described.read_text()
        needs = json.loads(whole)
        for content, reason in (
            (json.dumps(needs | {"cpu": [needs["cpu"][0], ["tbm"]]}), "another processor"),
            (json.dumps(needs | {"grows": needs["grows"][1:]}), r"1x32\.json"),
            ("{", r"1x32\.json"),
        ):
            described.write_text(content)
            with pytest.raises(UserError, match="damaged"):
                jq.LanguageModel(folder)
            files = {name: file.model_dump() for name, file in checksums(folder).items()}
            manifest.write_text(json.dumps(document | {"files": files}))
            with pytest.raises(UserError, match=reason):
                jq.LanguageModel(folder)
            manifest.write_text(text)
        described.write_text(whole)
    finally:
        manifest.write_text(text)


def test_every_file_is_as_it_was_written(folder, tmp_path):
    own = shutil.copytree(folder, tmp_path / "out")
    load(own)
    names = [p.relative_to(own) for p in own.rglob("*") if p.is_file() and p.name != MANIFEST]
    assert {p.suffix for p in names} == {".vmfb", ".json", ".irpa", ".gguf"}
    for name in names:
        path = own / name
        whole = path.read_bytes()
        for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            path.write_bytes(content)
            with pytest.raises(UserError, match=f"{name.name} is damaged"):
                load(own)
        path.unlink()
        with pytest.raises(UserError, match="is missing"):
            load(own)
        path.symlink_to(folder / name)
        with pytest.raises(UserError, match="it is a link"):
            load(own)
        path.unlink()
        path.write_bytes(whole)
    (own / "2x32.irpa").write_bytes(b"weights of others")
    with pytest.raises(UserError, match="'2x32.irpa' is not in the manifest"):
        load(own)
    (own / "2x32.irpa").unlink()
    (own / "tokenizer" / "additional_chat_templates").symlink_to(tmp_path)
    with pytest.raises(UserError, match="additional_chat_templates' is not in the manifest"):
        load(own)


def test_a_model_is_replaced_whole_or_not_at_all(file, folder, tmp_path, monkeypatch):
    own = shutil.copytree(folder, tmp_path / "out")
    before = checksums(own)
    decoder = load_decoder(file)
    options = options_for(decoder, None, None, 1)

    def fails(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("jq.language.saved._copy_tokenizer", fails)
        with pytest.raises(OSError, match="No space"):
            save(decoder, options, own, force=True)
    assert checksums(own) == before and load(own)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    (own / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        save(decoder, options, own, force=True)
    (own / "notes.txt").unlink()
    save(decoder, options, own, force=True)
    assert load(own).options.context == 1
    assert not any(name.startswith(("1x32", "4x32")) for name in checksums(own))


def test_a_signature_is_of_all_files(file, tmp_path, capsys):
    pairs = [keys(tmp_path, name) for name in ("mine", "other")]
    decoder, out = load_decoder(file), tmp_path / "out"
    save(decoder, options_for(decoder, None, None, 8), out, key=pairs[0][0])
    assert jq.LanguageModel(out, verify=pairs[0][1]).options.context == 8
    with pytest.raises(UserError, match="none of the 1 keys"):
        jq.LanguageModel(out, verify=pairs[1][1])
    with pytest.raises(UserError, match="only what was compiled ahead is signed"):
        jq.LanguageModel(file, verify=pairs[0][1])
    command = ["generate", str(out), "--prompt", "a", "--max-tokens", "1", "-q", "--verify"]
    assert main([*command, str(pairs[0][1])]) == 0
    assert main([*command, str(pairs[1][1])]) == 2
    manifest = out / MANIFEST
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(UserError, match="or it changed"):
        jq.LanguageModel(out, verify=pairs[0][1])


def test_a_folder_that_has_files_stays(file, folder, tmp_path):
    decoder = load_decoder(file)
    (tmp_path / "notes.txt").write_text("mine")
    options = options_for(decoder, None, None, CONTEXT)
    for place in (tmp_path, folder):
        with pytest.raises(UserError, match="not empty"):
            save(decoder, options, place)
    assert not is_saved(tmp_path)


def test_caches_that_grow_have_a_program_for_each_size():
    assert capacities(Options(context=2000)) == [2000]
    assert capacities(Options(cache="int8", context=2000)) == [512, 1024, 2000]
    assert capacities(Options(cache="int8", context=100))[-1] >= 100


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--set", "weights.format=int8"], "--set"),
        (["--target", "npu-int8"], "--target"),
        (["--text", "text.txt"], "--text"),
        (["--context", "100000"], "context"),
        (["--kv-cache", "int3"], "int3"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(file, given, reason, tmp_path, capsys):
    assert main(["compile", str(file), "-o", str(tmp_path / "out"), *given]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_models_have_no_context(tmp_path, capsys):
    command = ["compile", "jq.models:digits_cnn", "-o", str(tmp_path / "out"), "--context", "8"]
    assert main(command) == 2
    assert "--context is for language models" in capsys.readouterr().err


def test_the_command_compiles_and_generates(file, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["compile", str(file), "-o", out, "--context", "12", "--json"]) == 0
    assert [p["tokens"] for p in json.loads(capsys.readouterr().out)["programs"]] == [1, 4]
    assert main(["generate", out, "--prompt", "ab", "--max-tokens", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tokens"]) == 2
