"""One measurement: a model with its inputs, and who runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

import jq
from jq.frontends.model import Batch, Model, batches

Arrays = list[np.ndarray]
FLOAT, BFLOAT16 = "float", "bfloat16"  # kinds: what is quantized
DYNAMIC, STATIC, WEIGHTS8, WEIGHTS4 = "dynamic", "static", "weights8", "weights4"
FEWER = "fewer"  # bits of weights than 4
SAMPLES = 32  # inputs that an error is measured on


HERE = Path(__file__).parent
EXPORT = tuple(HERE / name for name in ("export.py", "onnx_graph.py", "onnx_rules.py"))
MODELS = tuple(sorted((Path(jq.__file__).parent / "models").glob("*.py")))


def digest_of(*groups: Sequence[Path]) -> str:
    """Digest of the contents of files."""
    digest = hashlib.sha256()
    for path in (path for group in groups for path in group):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Skipped(Exception):
    """The reason that a contender cannot run; shown, and the others go on."""


@dataclass(frozen=True)
class Score:
    """A figure of a program's outputs on the whole evaluation set, more is better.

    Attributes:
        means: what is counted, in words.
        of: the figure, from a program's outputs and the float model's.
    """

    means: str
    of: Callable[[Sequence[Arrays], Sequence[Arrays]], float]


@dataclass(frozen=True)
class Case:
    """A model, and the pipelines of ours that are measured on it.

    Attributes:
        family: `transformer`, `convolution`, `decode` or `product`: what quantizers are told.
        kinds: which kinds of quantization make sense for it.
        files: what the model is made by, besides its sizes; changed, it is another model.
        repeats: a call runs so many copies of the product; times are given for one.
        onnx: the model's own file where it comes as one: the peers take it as it is, and ONNX
            Runtime's float results are the reference.
        score: a measure of its own, in place of the accuracy by labels.
    """

    name: str
    build: Callable[[], Model]
    pipelines: tuple[str, ...]
    family: str
    kinds: frozenset[str]
    files: tuple[Path, ...] = MODELS
    repeats: int = 1
    onnx: Path | None = None
    score: Score | None = None


@dataclass
class Source:
    """A case's model and its data, made when first needed; files go to `folder`.

    Attributes:
        samples: how many inputs an error is measured on, at least.
    """

    case: Case
    folder: Path
    samples: int = SAMPLES

    @cached_property
    def model(self) -> Model:
        return self.case.build()

    @cached_property
    def calibration(self) -> list[Arrays]:
        return _flat(batches(self.model.calibration) or [])

    @cached_property
    def evaluation(self) -> list[Arrays]:
        """`samples` inputs, a batch of them counting as many."""
        found = _flat(batches(self.model.evaluation) or [self.model.example_inputs])
        rows = len(found[0][0]) if found[0][0].ndim > 1 else 1
        return found[: -(-self.samples // rows)]

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Those of the evaluation set, one an input."""
        found = self.model.labels
        labels = found() if callable(found) else found
        return None if labels is None else np.asarray(labels)

    @cached_property
    def reference(self) -> list[Arrays]:
        """The float model's results: JAX on the CPU, float32; of an ONNX file ONNX Runtime's."""
        if self.case.onnx is not None:
            return by_onnxruntime(self.case.onnx, self.evaluation)
        params = jax.tree.map(jax.numpy.asarray, self.model.params)
        function = jax.jit(lambda *inputs: self.model.fn(params, *inputs))
        return [[np.asarray(y) for y in jax.tree.leaves(function(*x))] for x in self.evaluation]

    @cached_property
    def onnx(self) -> Path:
        """The float model in ONNX; which of its inputs are NCHW is kept beside it."""
        from peers.export import export_onnx

        if self.case.onnx is not None:
            self.images: list[int] = []
            return self.case.onnx
        path = self.folder / "float.onnx"
        facts, digest = path.with_suffix(".json"), digest_of(EXPORT, self.case.files)
        if not facts.exists() or json.loads(facts.read_text())["digest"] != digest:
            self.folder.mkdir(parents=True, exist_ok=True)
            found = {"digest": digest, "images": export_onnx(self.model, path)}
            facts.write_text(json.dumps(found))
        self.images = json.loads(facts.read_text())["images"]
        return path

    def onnx_inputs(self, calls: Sequence[Arrays]) -> list[Arrays]:
        from peers.export import as_inputs

        assert self.onnx
        return [as_inputs(arrays, self.images) for arrays in calls]


def by_onnxruntime(path: Path, calls: Sequence[Arrays], optimized: str = "") -> list[Arrays]:
    """Results of a file as it is written, or with ONNX Runtime's graph optimization: `optimized` is
    `integers`, which makes operators on integers of Q/DQ pairs, and is of no machine; or `floats`,
    all of it but that, so that the same floats are summed in another order."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {
        "": levels.ORT_DISABLE_ALL,
        "integers": levels.ORT_ENABLE_EXTENDED,
        "floats": levels.ORT_ENABLE_ALL,
    }[optimized]
    if optimized == "floats":
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return [session.run(None, dict(zip(names, x, strict=True))) for x in calls]


def _flat(calls: Sequence[Batch]) -> list[Arrays]:
    return [[np.asarray(x) for x in jax.tree.leaves(call)] for call in calls]


class Program(Protocol):
    """A built program, loaded."""

    def __call__(self, inputs: Arrays) -> Arrays: ...

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        """A call with these inputs that neither copies them in nor the results out."""


@dataclass(frozen=True)
class Contender:
    """One way to run a case.

    Attributes:
        name: as in the tables.
        runtime: what runs it (`programs.RUNTIMES`).
        kind: what is quantized; `float` is not.
        program: what it runs; contenders that differ in `options` alone share one.
        build: writes the program to a folder; returns its file.
        versions: what the result depends on besides the model.
        options: the runtime's own.
    """

    name: str
    runtime: str
    kind: str
    program: str
    build: Callable[[Source, Path], str]
    versions: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    ours: bool = False
