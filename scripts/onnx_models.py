#!/usr/bin/env python3
"""Built-in models that ONNX Runtime has quantized, imported and compared with ONNX Runtime.

    scripts/onnx_models.py                                  # all models in all forms
    scripts/onnx_models.py minilm-1x128 --form dynamic
    scripts/onnx_models.py mobilenet-224 --times            # beside ONNX Runtime, on one core
    scripts/onnx_models.py mobilenet-224 --layers --form dynamic    # each layer by itself

A model is exported to ONNX and quantized by ONNX Runtime in every form (static Q/DQ, static
operators, dynamic); the float file is compared too. Of each it prints

    float       the largest error over the largest output, of the float file's own artifact
    integer     contractions of the artifact on i8 x i8, and how many the file has
    codes       share of quantized numbers of all tensors in the graph that are equal, and the
                largest distance, on one input: to ONNX Runtime without graph optimization, to it
                with all of it that is of no machine ("optimized": Q/DQ pairs become operators on
                integers there), of both to each other ("its own two"), of the first to it with all
                optimization but that of Q/DQ pairs ("other sums": the same floats, added in another
                order), and of the first to itself with one number of the input moved. The same of
                the codes alone that are dequantized to results ("results")

and with --times instead of them the median times of the artifact and of ONNX Runtime with all
optimizations, which run in turns; artifacts are kept in OUTPUT, so that a second run only measures.
With --layers every layer reads the codes that ONNX Runtime computed in front of it, so that what is
printed are the differences of single layers, which nothing before them has made larger: how many
layers have all codes equal, the share of equal codes of all, and of the layer that has the least;
and the share for ONNX Runtime itself with "other sums".

Exit code 1 where an integer contraction is missing. Needs the extra `bench`.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers import cases, ort
from peers.case import Arrays, Source, by_onnxruntime
from peers.programs import Iree, OnnxRuntime

import jq
from tests.frontends.onnx.by_layer import inputs_of, layers

FORMS = ("float", "static", "operators", "dynamic")
NAMES = ("minilm-1x128", "resnet-224", "mobilenet-224")
# Integer products of a file, by the type of node.
PRODUCTS = {"MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "QGemm"}
FLOATS = {"Conv", "MatMul", "Gemm"}


def check(
    names: Annotated[list[str] | None, typer.Argument(help=", ".join(NAMES))] = None,
    form: Annotated[str, typer.Option(help="By comma.")] = ",".join(FORMS),
    samples: Annotated[int, typer.Option(help="Inputs that ranges come from.")] = 4,
    times: Annotated[bool, typer.Option("--times", help="Times instead of differences.")] = False,
    by_layer: Annotated[bool, typer.Option("--layers", help="Each layer by itself.")] = False,
    rounds: Annotated[int, typer.Option(help="Turns of each, with --times.")] = 30,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/onnx_models"),
) -> None:
    logging.disable(logging.WARNING)  # advice to preprocess the model
    missing = 0
    for name in names or NAMES:
        source = Source(cases.find(name), output / name)
        source.calibration[samples:] = []
        (x,) = source.onnx_inputs(source.evaluation[:1])
        for kind in form.split(","):
            path = _quantized(source, kind)
            if by_layer:
                if kind != "float":
                    print(f"{name} {kind}: {_by_layer(path, x)}", flush=True)
                continue
            if times:
                print(f"{name} {kind}: {_timed(path, x, rounds)}", flush=True)
                continue
            line, found, wanted = _compared(path, x, kind)
            print(f"{name} {kind}: {line}", flush=True)
            missing += found < wanted
    sys.exit(bool(missing))


def _quantized(source: Source, kind: str) -> Path:
    folder = source.folder / kind
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "float":
        return source.onnx
    if not (folder / "model.onnx").exists():
        if kind == "dynamic":
            ort.build_dynamic(source, folder)
        else:
            ort.build_static(source, folder, "QDQ" if kind == "static" else "QOperator")
    return folder / "model.onnx"


def _timed(path: Path, x: Arrays, rounds: int) -> str:
    """Medians, on one thread; an artifact of an earlier run is taken as it is."""
    kept = path.with_name(f"{path.stem}.artifact")
    if not kept.exists():
        jq.compile(jq.load_onnx(path), pipeline="float").save(kept)
    programs = [Iree(kept, {}, 1).bind(x), OnnxRuntime(path, {}, 1).bind(x)]
    found: list[list[float]] = [[], []]
    for turn in range(rounds + 2):
        for run, spent in zip(programs, found, strict=True):
            for _ in range(5):
                start = time.perf_counter()
                run()
                spent += [time.perf_counter() - start] * (turn > 1)
    ours, theirs = (1e3 * float(np.median(each)) for each in found)
    return f"{ours:.3f} ms, ONNX Runtime {theirs:.3f} ms: {ours / theirs:.2f}"


def _by_layer(path: Path, x: Arrays) -> str:
    """Differences of each layer that is given ONNX Runtime's own codes."""
    found = [layer for layer in layers(path, *x) if layer.codes]
    equal = [1 - layer.differing / layer.size for layer in found]
    worst = min(zip(equal, found, strict=True), key=lambda pair: pair[0])
    whole = 1 - sum(layer.differing for layer in found) / sum(layer.size for layer in found)
    return (
        f"{equal.count(1)} of {len(found)} layers exact, {whole:.4%} of codes equal, at most "
        f"{max(layer.apart for layer in found)} apart; least {worst[0]:.4%} ({worst[1].name}); "
        f"other sums {_other_sums(path, x, [layer.name for layer in found])}"
    )


def _other_sums(path: Path, x: Arrays, codes: list[str]) -> str:
    """ONNX Runtime layer by layer, its floats summed in another order; `layers` made the files."""
    import onnx

    shown, apart = (path.with_name(f"{name}.onnx") for name in ("shown", "cut"))
    whole, model = onnx.load(shown, load_external_data=False).graph, onnx.load(apart)
    names = [o.name for o in whole.output]
    theirs = dict(zip(names, by_onnxruntime(shown, [x])[0], strict=True))
    given = inputs_of(model, dict(zip([i.name for i in whole.input], x, strict=True)), theirs)
    found = dict(zip(names, by_onnxruntime(apart, [given], optimized="floats")[0], strict=True))
    return _alike(found, theirs, codes)


def _compared(path: Path, x: Arrays, kind: str) -> tuple[str, int, int]:
    """The lines to print, and the integer contractions of the artifact and of the file."""
    import onnx

    model = onnx.load(path)
    wanted = _products(model)
    results = [o.name for o in model.graph.output]
    codes = [] if kind == "float" else _codes(model)
    model.graph.output.extend(onnx.helper.make_value_info(n, onnx.TypeProto()) for n in codes)
    shown = path.with_name("shown.onnx")
    onnx.save(model, shown)
    names = [o.name for o in model.graph.output]
    theirs = dict(zip(names, by_onnxruntime(shown, [x])[0], strict=True))
    compiled = jq.compile(jq.load_onnx(shown), pipeline="float")
    ours = compiled(*x)
    contractions = compiled.audit().to_dict()["contractions"]
    found = sum((c["lhs"], c["rhs"]) == ("i8", "i8") for c in contractions)
    error = max(_relative(ours[n], theirs[n]) for n in results if theirs[n].dtype.kind == "f")
    line = f"float error {error:.1e}, integer {found} of {wanted}"
    if codes:
        nudged = dict(zip(names, by_onnxruntime(shown, [_nudged(x)])[0], strict=True))
        fused, sums = (
            dict(zip(names, by_onnxruntime(shown, [x], optimized=how)[0], strict=True))
            for how in ("integers", "floats")
        )
        line += f", codes {_alike(ours, theirs, codes)}; optimized {_alike(ours, fused, codes)}; "
        line += f"its own two {_alike(fused, theirs, codes)}; "
        line += f"other sums {_alike(sums, theirs, codes)}; itself {_alike(nudged, theirs, codes)}"
        if last := _last(model, codes):
            line += f"; results {_alike(ours, theirs, last)}, "
            line += f"other sums {_alike(sums, theirs, last)}"
    return line, found, wanted


def _nudged(x: Arrays) -> Arrays:
    """An input with one number, in the middle, that is another; integers as they are."""
    first = np.array(x[0])
    if first.dtype.kind == "f":
        first.reshape(-1)[first.size // 2] += (first.max() - first.min()) / 255
    return [first, *x[1:]]


def _alike(ours: Any, theirs: Any, names: list[str]) -> str:
    away = np.concatenate([_away(ours[n], theirs[n]) for n in names])
    return f"{np.mean(away == 0):.4%} equal, at most {away.max()} apart"


def _relative(ours: Any, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def _away(ours: Any, theirs: np.ndarray) -> np.ndarray:
    return np.abs(np.asarray(ours).astype(np.int64) - theirs.astype(np.int64)).ravel()


def _codes(model: Any) -> list[str]:
    """Tensors of codes that a node makes: quantized activations."""
    there = {o.name for o in model.graph.output}
    made = [
        n.output[0]
        for n in model.graph.node
        if n.op_type in ("QuantizeLinear", "DynamicQuantizeLinear")
        or n.op_type.startswith("QLinear")
    ]
    return [name for name in made if name not in there]


def _last(model: Any, codes: list[str]) -> list[str]:
    """Those of the codes that are dequantized to a result of the graph."""
    results = {o.name for o in model.graph.output}
    ends = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    read = {n.input[0] for n in ends if results.intersection(n.output)}
    return [name for name in codes if name in read]


def _products(model: Any) -> int:
    """Products on integers: operators on codes, and floats between dequantized operands."""
    dequantized = {n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    through = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "MaxPool"}
    for node in model.graph.node:
        if node.op_type in through and node.input[0] in dequantized:
            dequantized.add(node.output[0])
    return sum(
        n.op_type in PRODUCTS
        or (n.op_type in FLOATS and all(name in dequantized for name in n.input[:2]))
        for n in model.graph.node
    )


if __name__ == "__main__":
    typer.run(check)
