"""Built-in models, small, through every pipeline, against float.

The bound comes from the formats. The noise of a weight is that of its stored form, relative to
the weight's power. An activation in `b` bits has steps of its range / (2^b - 1) and noise of
step^2 / 12, where the range is taken to be 2 * CREST times the root of its mean square. The
noise of all quantized tensors adds up, and passes the network as the signal does but for a
factor: GAIN, or what noise on the inputs is seen to grow by (deep networks of random weights
amplify it).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from jq import api
from jq.base.system.folders import data_dir
from jq.formats import NUMPY, Encoding, get_format
from jq.frontends.model import Batch, batches
from jq.ir import Program, dtype_of
from jq.ir.oracle.xla import XlaExecutable
from jq.models.zoo.digits_cnn import build as digits_cnn
from jq.models.zoo.gpt import build as gpt
from jq.models.zoo.mobilenet import build as mobilenet
from jq.models.zoo.resnet import build as resnet
from tests.support.encoder import build_random as minilm
from tests.support.noise import GAIN, error, rounding

pytestmark = pytest.mark.usefixtures("quick_xla")

MODELS = {
    "digits_cnn": lambda: digits_cnn(width=4, epochs=1),
    "gpt": lambda: gpt(layers=1, hidden=32, heads=2, vocabulary=64, context=16),
    "minilm": lambda: minilm(layers=1),
    "mobilenet": lambda: mobilenet(depth=0.2, width=0.25, image=32, classes=10),
    "resnet": lambda: resnet(depth=14, width=8, image=32, classes=10),
}
PIPELINES = sorted(path.stem for path in data_dir("pipelines").glob("*.toml"))


@cache
def floats(name: str) -> tuple[api.Source, list[Batch], list[list[np.ndarray]]]:
    """The traced model, four calibration batches, and its float outputs for the first."""
    model = MODELS[name]()
    source = api.trace(model)
    given = batches(model.calibration)[:4]
    return source, given, XlaExecutable(source.program)(*source.calls(given)[0])


def noise_to_signal(levels: dict[str, Program]) -> float:
    """Powers of noise over powers of signal, of all tensors that are quantized."""
    total = 0.0
    for name, stored in levels["integer"].encodings.items():
        x = levels["float"].weights[name].astype(np.float64)
        keys = ("format", "scheme", "scale_type")
        shape, block = tuple(stored["shape"]), tuple(stored["block"])
        options = tuple(sorted(stored["options"].items()))
        enc = Encoding(shape=shape, block=block, options=options, **{k: stored[k] for k in keys})
        fmt = get_format(enc.format)
        decoded = np.asarray(fmt.decode(NUMPY, fmt.encode(x.astype(np.float32), enc), enc))
        total += np.sum((decoded - x) ** 2) / np.sum(x**2)
    for op in levels["integer"].walk():
        halves = [v for v in op.operation.operands if dtype_of(v).name == "bfloat16"]
        total += len(halves) * 2.0**-18  # 8 bits: each number is off by 2^-9 of it at most
        if op.operation.name in ("stablehlo.dot_general", "stablehlo.convolution"):
            integer = dtype_of(op.operation.results[0]).kind == "i"
            total += integer * rounding() * 2  # both operands, at most
    return total


@cache
def gain(name: str) -> float:
    """Gain in power of a relative error, from where it arises to the outputs.

    Measured in float, with noise on the inputs; inputs that are not float get none.
    """
    source, calibration, want = floats(name)
    inputs, rng = source.calls(calibration)[0], np.random.default_rng(0)
    share, run, worst = 1e-3, XlaExecutable(source.program), GAIN
    for _ in range(8):
        noise = [
            x + share * np.sqrt(np.mean(x**2)) * rng.standard_normal(x.shape).astype(x.dtype)
            if x.dtype.kind == "f"
            else x
            for x in inputs
        ]
        worst = max(
            worst, *(error(a, b) / share**2 for a, b in zip(run(*noise), want, strict=True))
        )
    return worst


def check(name: str, got: list[np.ndarray], levels: dict[str, Program]) -> None:
    # Float arithmetic in another order has 24 bits; noise as large as the signal is never right.
    bound = min(gain(name) * max(noise_to_signal(levels), 2.0**-40), 1.0)
    for a, b in zip(got, floats(name)[2], strict=True):
        assert error(a, b) <= bound


# Of other formats the smallest network of convolutions does. `auto` runs on two networks: what it
# chooses among runs on all.
_OTHERS = {p for p in PIPELINES if not p.startswith(("float", "int8"))}
LEFT_OUT = {"mobilenet": _OTHERS, "minilm": {"auto"}, "resnet": _OTHERS - {"bf16", "mxfp8"}}
CASES = [(m, p) for m in MODELS for p in PIPELINES if p not in LEFT_OUT.get(m, ())]


@pytest.mark.parametrize(("model", "pipeline"), CASES)
def test_close_to_float(model, pipeline):
    source, calibration, _ = floats(model)
    levels = api.rewrite(source, pipeline=pipeline, calibration=calibration)
    assert bool(levels["integer"].encodings) == (pipeline not in ("float", "bf16"))
    inputs = source.calls(calibration)[0]
    check(model, XlaExecutable(levels["integer"])(*inputs), levels)


@pytest.mark.parametrize(
    ("model", "pipeline"), [("digits_cnn", "int8-static"), ("minilm", "int8-dynamic")]
)
def test_close_to_float_on_iree(model, pipeline):
    source, calibration, _ = floats(model)
    compiled = api.compile(source, pipeline, calibration=calibration)
    check(model, compiled.call_flat(source.calls(calibration)[0]), compiled.levels)
