"""Floats between codes, with DEQUANTIZE in front and QUANTIZE behind, as LiteRT computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.device.exporting import PIPELINE
from jq.device.forms.tflite import DESCRIPTION, run
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.frontends.tflite.schema import READ, SCHEMA, TYPES
from jq.passes.pipeline import rewrite
from tests.support.programs import evaluated

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

TARGETS = ["litert", "litert-reference"]
NUMBERS = {name: number for number, name in READ.items()}
X = (1, 6, 8, 16)
EXACT = ["ABS", "SQRT", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "NEG", "SQUARE", "FLOOR"]
NEAR = ["EXP", "LOG", "SIN", "COS", "TANH", "LOGISTIC", "GELU", "HARD_SWISH"]
OF_TWO = ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"]
OPTIONS: dict[str, Any] = {"LEAKY_RELU": ("LeakyReluOptions", {"alpha": 0.13})}
OPTIONS |= {kind: (f"{kind.capitalize()}Options", {}) for kind in OF_TWO[:4]}
Given = tuple[float, int]


class File:
    """A file in the making, of tensors by their numbers."""

    def __init__(self) -> None:
        self.tensors: list[dict[str, Any]] = []
        self.buffers: list[dict[str, Any]] = [{}]
        self.operators: list[dict[str, Any]] = []
        self.kinds: list[str] = []

    def tensor(
        self, shape: Any = X, codes: Given | None = None, data: Any = None, dtype: str = "int8"
    ) -> int:
        found: dict[str, Any] = {"shape": list(shape), "buffer": 0, "name": f"t{len(self.tensors)}"}
        found["type"] = TYPES[dtype if codes else "float32" if data is None else data.dtype.name]
        if codes:
            scale, zero = np.array(codes[:1], np.float32), np.array(codes[1:], np.int64)
            found["quantization"] = {"scale": scale, "zero_point": zero}
        if data is not None:
            self.buffers.append({"data": np.frombuffer(data.tobytes(), np.uint8)})
            found["buffer"] = len(self.buffers) - 1
        self.tensors.append(found)
        return len(self.tensors) - 1

    def constant(self, values: Any, dtype: Any = np.float32) -> int:
        data = np.asarray(values, dtype)
        return self.tensor(data.shape, data=data)

    def op(self, kind: str, *inputs: int, to: int | None = None, shape: Any = X) -> int:
        to = self.tensor(shape) if to is None else to
        self.kinds += [kind] if kind not in self.kinds else []
        row = {"opcode_index": self.kinds.index(kind), "inputs": inputs, "outputs": [to]}
        self.operators.append(row | ({"builtin_options": OPTIONS[kind]} if kind in OPTIONS else {}))
        return to

    def dequantized(self, codes: Given, dtype: str = "int8", shape: Any = X) -> int:
        return self.op("DEQUANTIZE", self.tensor(shape, codes, dtype=dtype), shape=shape)

    def data(self, target: str, result: int) -> bytes:
        inputs = [
            i
            for i, t in enumerate(self.tensors)
            if "quantization" in t and not any(i in o["outputs"] for o in self.operators)
        ]
        kinds = [
            {"deprecated_builtin_code": min(NUMBERS[k], 127), "builtin_code": NUMBERS[k]}
            | {"version": 2 if k == "DEQUANTIZE" else 1}
            for k in self.kinds
        ]
        graph = {"tensors": self.tensors, "operators": self.operators, "inputs": inputs}
        rounding = "float32" if target == "litert" else "double"
        model = {"version": 3, "description": DESCRIPTION[rounding], "operator_codes": kinds}
        model |= {"subgraphs": [graph | {"outputs": [result]}], "buffers": self.buffers}
        return SCHEMA.encode("Model", model)


def held(
    file: File, result: int, target: str, folder: Path, xs: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Codes of the integer program and of LiteRT, and what is told of them."""
    path = folder / "m.tflite"
    path.write_bytes(file.data(target, result))
    ((want,),) = run(path.read_bytes(), [xs])
    request = Request(PIPELINE, target, {"recovery": False}, calibration=[tuple(xs)])
    job = prepare_job(str(path), request)
    context = job.context(plan_job(job, request.stages))
    levels = rewrite(job.program, job.pipeline, context, "integer")
    return evaluated(levels["integer"], *xs)[0], want, levels["integer"].notes


def drawn(count: int, dtype: str = "int8", seed: int = 0) -> list[np.ndarray]:
    ends, rng = np.iinfo(dtype), np.random.default_rng(seed)
    return [rng.integers(ends.min, ends.max + 1, X).astype(dtype) for _ in range(count)]


def fitting(file: File, y: int, xs: list[np.ndarray], dtype: str = "int8") -> int:
    """A QUANTIZE whose codes hold most of the numbers of `y`."""
    ((numbers,),) = run(file.data("litert", y), [xs])
    found, ends = numbers[np.isfinite(numbers)], np.iinfo(dtype)
    low, high = (min(np.quantile(found, 0.02), 0), max(np.quantile(found, 0.98), 1e-3))
    codes = (high - low) / 255, int(np.clip(np.rint(-128 - low / (high - low) * 255), -128, 127))
    if ends.bits == 16:
        codes = max(-low, high) / ends.max, 0
    return file.op("QUANTIZE", y, to=file.tensor(numbers.shape, codes, dtype=dtype))


def chain(seed: int, dtype: str = "int8") -> tuple[File, int, list[np.ndarray]]:
    """One to four operators on one tensor of codes or on two."""
    rng, file = np.random.default_rng(seed), File()

    def codes() -> Given:
        return rng.uniform(0.01, 0.08), int(rng.integers(-128, 128))

    two = dtype == "int8" and rng.random() < 0.5
    narrow = [codes() if dtype == "int8" else (2e-4, 0) for _ in range(1 + two)]
    floats = [file.dequantized(c, dtype) for c in narrow]
    for kind in rng.choice(EXACT * 2 + NEAR + OF_TWO * 2, rng.integers(1, 5)):
        if kind not in OF_TWO:
            floats[0] = file.op(kind, floats[0])
        elif len(floats) > 1:
            floats = [file.op(kind, *floats)]
        else:
            shape = (16,) if rng.random() < 0.5 else (1,)
            floats = [file.op(kind, floats[0], file.constant(rng.uniform(0.3, 3, shape)))]
    y = file.op("SUB", *floats) if len(floats) > 1 else floats[0]
    xs = drawn(len(narrow), dtype, seed)
    return file, fitting(file, y, xs, dtype), xs


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "seeds"), [("int8", range(12)), ("int16", range(4))])
def test_drawn_chains_are_litert_s_or_told(
    target: str, dtype: str, seeds: range, tmp_path: Path
) -> None:
    for seed in seeds:
        file, y, xs = chain(seed, dtype)
        got, want, notes = held(file, y, target, tmp_path, xs)
        told = any("floats between codes" in note for note in notes)
        near = {*file.kinds} & {*NEAR} - ({"HARD_SWISH"} if target == TARGETS[1] else set())
        assert told == bool(near or (dtype, target) == ("int16", "litert")), (seed, file.kinds)
        assert told or np.array_equal(got, want), (seed, file.kinds)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", TARGETS)
def test_ties_go_as_the_kernels_send_them(target: str, tmp_path: Path) -> None:
    """Steps of one half: to even by XNNPACK, away from zero by reference kernels."""
    file = File()
    y = file.op("NEG", file.dequantized((2.0**-5, -3)))
    y = file.op("QUANTIZE", y, to=file.tensor(X, (2.0**-4, 5)))
    got, want, notes = held(file, y, target, tmp_path, drawn(1))
    assert np.array_equal(got, want) and not notes


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", TARGETS)
def test_a_gate_next_to_a_tie_is_that_of_the_reference_kernel(target: str, tmp_path: Path) -> None:
    """Told for XNNPACK, which adds and multiplies with one rounding."""
    file = File()
    y = file.op("HARD_SWISH", file.dequantized((0.267, 0)))
    y = file.op("QUANTIZE", y, to=file.tensor(X, (0.178, 0)))
    got, want, notes = held(file, y, target, tmp_path, drawn(1))
    reference = target == "litert-reference"
    assert np.array_equal(got, want) == reference == (not notes)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zero", [-100, 100])
def test_what_is_no_number_is_an_end_of_the_codes(target: str, zero: int, tmp_path: Path) -> None:
    """The end that kernels take for NaN of a root and infinities of a quotient."""
    file = File()
    x = file.dequantized((0.05, 3))
    y = file.op("ADD", file.op("SQRT", x), file.op("DIV", file.constant([1.0]), x))
    y = file.op("QUANTIZE", y, to=file.tensor(X, (0.02, zero)))
    got, want, _ = held(file, y, target, tmp_path, drawn(1))
    assert np.array_equal(got, want)
    assert (got == (127 if target == "litert" or zero < 0 else -128)).sum() > 300


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_moved_keeps_the_rounding_of_its_kernel(target: str, tmp_path: Path) -> None:
    """QUANTIZE is computed in front of what moves numbers or chooses among them."""
    file, (n, h, w, c) = File(), X
    y = file.op("NEG", file.dequantized((2.0**-5, -3)))
    y = file.op("TRANSPOSE", y, file.constant([0, 2, 1, 3], np.int32), shape=(n, w, h, c))
    y = file.op("MAXIMUM", y, file.constant([0.5]), shape=(n, w, h, c))
    y = file.op("QUANTIZE", y, to=file.tensor((n, w, h, c), (2.0**-4, 5)))
    got, want, _ = held(file, y, target, tmp_path, drawn(1))
    assert np.array_equal(got, want)


def test_two_tensors_compiled_and_refused_where_a_file_has_no_form(tmp_path: Path) -> None:
    file = File()
    y = file.op("MUL", file.op("SQRT", file.dequantized((0.02, -128))), file.dequantized((0.03, 4)))
    xs = drawn(2)
    y = fitting(file, y, xs)
    path = tmp_path / "m.tflite"
    path.write_bytes(file.data("litert", y))
    ((want,),) = run(path.read_bytes(), [xs])
    compiled = jq.compile(str(path), PIPELINE, target="litert", calibration=[xs])
    assert np.array_equal(next(iter(compiled(*xs).values())), want)
    with pytest.raises(jq.UserError, match=r"table of several has no form in TFLite.*; cut"):
        jq.export(str(path), tmp_path / "again.tflite", target="litert", calibration=[xs])


@pytest.mark.usefixtures("quick_xla")
def test_other_targets_round_once(tmp_path: Path) -> None:
    file = File()
    y = file.op("NEG", file.dequantized((2.0**-5, -3)))
    y = file.op("QUANTIZE", y, to=file.tensor(X, (2.0**-4, 5)))
    (x,) = drawn(1)
    got, _, notes = held(file, y, "npu-int8", tmp_path, [x])
    assert np.array_equal(got, np.clip(np.rint((x.astype(int) + 3) / -2) + 5, -128, 127))
    assert not any("LiteRT" in note for note in notes)
