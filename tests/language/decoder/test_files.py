"""Files that hold a model under other names: without a suffix, in capitals, in several parts."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import gguf
import pytest

from jq.base.errors import UserError
from jq.cli.language import is_language_model
from jq.language.decoder import load_decoder
from jq.language.quantize import quantize
from jq.language.store import Options, folder_of
from tests.language.decoder.test_decoder import assert_equal, logits_of
from tests.support.decoders import CASES, write_gguf

BLOB = "sha256-" + "5e" * 32


@pytest.mark.parametrize("name", [BLOB, "model.GGUF", "model.Gguf", "model", "model.bin"])
def test_a_model_is_known_by_its_content(tmp_path, name):
    path = write_gguf("llama", tmp_path / "m.gguf").rename(tmp_path / name)
    assert is_language_model(str(path))
    assert load_decoder(path).config.layers == 2


@pytest.mark.parametrize("content", [b"", b"GGU", b"#!/bin/sh"])
def test_what_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "blob"
    path.write_bytes(content)
    assert not is_language_model(str(path))
    with pytest.raises(UserError, match="not a language model"):
        load_decoder(path)


def test_blobs_of_other_content_have_other_programs(tmp_path):
    path, options = tmp_path / BLOB, Options()
    path.write_bytes(b"GGUF 1")
    first = folder_of(path, options, tmp_path / "cache")
    path.write_bytes(b"GGUF and more")
    assert folder_of(path, options, tmp_path / "cache") != first


@pytest.fixture
def parts(tmp_path, monkeypatch):
    writer = partial(gguf.GGUFWriter, split_max_tensors=8)
    monkeypatch.setattr(gguf, "GGUFWriter", writer)
    write_gguf("llama", tmp_path / "m.gguf")
    found = sorted(tmp_path.glob("m-*.gguf"))
    assert len(found) == 3
    return found


def test_parts_are_one_model(parts):
    for path in parts:
        decoder = load_decoder(path)
        assert decoder.path == parts[0]
        assert "tokenizer.ggml.tokens" in decoder.file.metadata
    assert_equal("llama", logits_of(decoder, CASES["llama"]["tokens"]))


def test_a_part_that_is_missing_or_another_is_named(parts, tmp_path):
    with pytest.raises(UserError, match="part of a model"):
        quantize(parts[0], tmp_path / "out.gguf", "q8_0")
    kept = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(UserError, match="no part 2 of 3"):
        load_decoder(parts[0])
    parts[1].unlink()
    with pytest.raises(UserError, match="00002-of-00003"):
        load_decoder(parts[0])
    parts[1].write_bytes(kept)
    alone = parts[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(UserError, match="one of 3 parts"):
        load_decoder(alone)


END = """
import builtins, types
import numpy as np
from jq.language.session import Session

def made():
    one = Session.__new__(Session)
    one._caches, one._logits, one.capacity = [one], np.zeros(3, np.float32), 16
    one.programs = types.SimpleNamespace(spare={}, of=one)
    return one

builtins.first, builtins.second = made(), made()
"""


def test_sessions_that_end_with_the_process_ask_nothing_of_numpy():
    """NumPy is gone by then: sessions are held by what Python clears last."""
    done = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
