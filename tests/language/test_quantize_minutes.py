"""GGUF files that are quantized on more and more of a text, for as long as there are minutes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from jq.artifact import store
from jq.base.errors import UserError
from jq.cli.app import main
from jq.frontends.gguf import load_gguf
from jq.language import quantize as module
from jq.language.decoder import load_decoder
from jq.language.decoder.layerwise import quantized_layers
from jq.language.quantize import pieces_of, quantize
from jq.language.tokenizer import tokenizer_of_gguf
from tests.support.decoders import write_gguf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minutes")
    write_gguf("mixtral", folder / "in.gguf")
    letters = np.random.default_rng(0).choice([*"abcd "], 500)
    (folder / "text.txt").write_text("".join(letters))
    return folder


class Killed(BaseException):
    """Nobody catches it, as nobody does a kill."""


def run(folder, out, monkeypatch, cache, minutes=0.0, limit=2, killed_at=None, seconds=1e-3):
    """The tensors of a file, and the number of matrices that were solved for it, each in so many
    seconds."""
    fitted, solved = module.fitted, []

    def counted(*given):
        if len(solved) == killed_at:
            raise Killed
        solved.append(given)
        return fitted(*given)

    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setattr(module, "fitted", counted)
        clock = SimpleNamespace(monotonic=lambda: seconds * len(solved), time=time.time)
        patch.setattr(store, "time", clock)
        texts = [folder / "text.txt"]
        quantize(folder / "in.gguf", out, "q4_0", texts, limit=limit, minutes=minutes)
    return load_gguf(out).tensors, len(solved)


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def lost(folder, path):
    """Relative squared error of the last layer's result, on the piece that is held out."""
    decoder, made = (load_decoder(p) for p in (folder / "in.gguf", path))
    tokenizer = tokenizer_of_gguf(decoder.file.metadata, "")
    piece = pieces_of([folder / "text.txt"], tokenizer, decoder.config, None)[-1:]
    results = {}

    def stored(path, aim, gram):
        node = made.params
        for part in path.split("/"):
            node = node[part]
        return np.asarray(node, np.float32) if "router" not in path else None

    for _ in quantized_layers(decoder, piece, stored, reached=results.__setitem__):
        pass
    ours, theirs = results[decoder.config.layers].astype(np.float64)
    return (np.square(ours - theirs).sum(-1) / np.square(theirs).sum(-1)).mean()


MATRICES = 2 * (4 + 3 * 4)  # of two layers, with four experts


def test_the_text_that_loses_least_is_taken(folder, tmp_path, monkeypatch):
    found, solved = run(folder, tmp_path / "out.gguf", monkeypatch, tmp_path, minutes=60)
    assert solved == 3 * MATRICES  # on 2, 4, and then all 6 pieces
    others = {}
    for limit in (2, 4, 6):
        path = tmp_path / f"{limit}.gguf"
        others[limit], _ = run(folder, path, monkeypatch, tmp_path, limit=limit)
    errors = {limit: lost(folder, tmp_path / f"{limit}.gguf") for limit in others}
    assert same(found, others[min(errors, key=errors.get)])
    assert not same(found, others[2])


def test_minutes_that_are_over_leave_the_first(folder, tmp_path, monkeypatch):
    found, solved = run(folder, tmp_path / "out.gguf", monkeypatch, tmp_path, minutes=1e-6)
    assert solved == MATRICES
    plain, solved = run(folder, tmp_path / "plain.gguf", monkeypatch, tmp_path)
    assert solved == 0
    assert same(found, plain)


@pytest.mark.parametrize("killed_at", [3, MATRICES + 5])
def test_a_run_that_was_killed_comes_to_the_same_end(folder, tmp_path, monkeypatch, killed_at):
    out, other = tmp_path / "out.gguf", tmp_path / "other.gguf"
    with pytest.raises(Killed):
        run(folder, out, monkeypatch, tmp_path / "a", 60, killed_at=killed_at)
    assert not out.exists()
    found, solved = run(folder, out, monkeypatch, tmp_path / "a", 60)
    assert solved == 3 * MATRICES - killed_at
    assert same(found, run(folder, other, monkeypatch, tmp_path / "b", 60)[0])


@pytest.mark.parametrize("killed_at", [MATRICES - 1, MATRICES + 5])
def test_minutes_count_what_an_earlier_run_took(folder, tmp_path, monkeypatch, killed_at):
    given = {"minutes": 3.5 * MATRICES / 6, "seconds": 10.0}  # the third turn would end later
    with pytest.raises(Killed):
        run(folder, tmp_path / "a", monkeypatch, tmp_path, killed_at=killed_at, **given)
    _, solved = run(folder, tmp_path / "a", monkeypatch, tmp_path, **given)
    assert solved == 2 * MATRICES - killed_at
    _, solved = run(folder, tmp_path / "b", monkeypatch, tmp_path, **given)
    assert solved == 0


def test_what_is_not_kept_is_not_quantized_on_what_judges(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store.Cache, "put", lambda *given: None)  # as on a full disk
    with pytest.raises(UserError, match="kept in the cache directory, which keeps none"):
        run(folder, tmp_path / "out.gguf", monkeypatch, tmp_path, minutes=60)


def test_mistakes_are_refused(folder, tmp_path):
    out, short = tmp_path / "out.gguf", tmp_path / "short.txt"
    with pytest.raises(UserError, match="minutes need a text"):
        quantize(folder / "in.gguf", out, "q4_0", minutes=1)
    short.write_text("abcd" * 16)
    with pytest.raises(UserError, match="two pieces"):
        quantize(folder / "in.gguf", out, "q4_0", [short], minutes=1)
    assert not out.exists()


def test_the_command(folder, tmp_path, capsys):
    out = tmp_path / "out.gguf"
    options = ["--type", "q4_0", "--importance", str(folder / "text.txt"), "--pieces", "2"]
    given = [*options, "--minutes", "1e-6", "-q"]
    assert main(["quantize", str(folder / "in.gguf"), str(out), *given]) == 0
    assert load_gguf(out).metadata["general.file_type"] == 2
    assert main(["quantize", str(folder), str(tmp_path / "out"), *given]) == 2
    assert "--minutes are of GGUF files" in capsys.readouterr().err
