"""The cases: built-in models, a decode step, and products by themselves."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from functools import partial

from jq.frontends.model import Model
from jq.frontends.tracing.source import load_model
from peers.case import DYNAMIC, HERE, MODELS, STATIC, WEIGHTS4, WEIGHTS8, Case
from peers.decode import decode_step
from peers.product import product

INT8 = frozenset({DYNAMIC, STATIC})
PRODUCTS = "op_types=dot_general"
WEIGHTS = frozenset({DYNAMIC, WEIGHTS8, WEIGHTS4})


def _built_in(module: str, **sizes: int) -> Callable[[], Model]:
    return lambda: importlib.import_module(f"jq.models.zoo.{module}").build(**sizes)


def models() -> dict[str, Case]:
    encoder = ("float", "bf16", "int8-dynamic", "int8-static")
    images = ("float", "bf16", "int8-static")
    decoder = (
        "float",
        "int8-weight-only",
        "int8-dynamic",
        "int4-weight-only",
        "int4-dynamic",
        # As ONNX Runtime's blocks: the embedding stays float, activations have blocks too.
        f"int4-dynamic weights.format=q8_0 weights.scheme=symmetric {PRODUCTS}",
        f"int4-dynamic {PRODUCTS}",
        f"int4-weight-only {PRODUCTS}",
    )
    found = [
        Case("minilm-1x128", _built_in("minilm"), encoder, "transformer", INT8),
        Case("minilm-8x128", _built_in("minilm", batch=8), encoder, "transformer", INT8),
        Case("minilm-1x128-full", _built_in("minilm", full=True), encoder, "transformer", INT8),
        Case(
            "minilm-8x128-full",
            _built_in("minilm", batch=8, full=True),
            encoder,
            "transformer",
            INT8,
        ),
        Case("resnet-224", _built_in("resnet"), images, "convolution", frozenset({STATIC})),
        Case("mobilenet-224", _built_in("mobilenet"), images, "convolution", frozenset({STATIC})),
        Case("digits_cnn", _built_in("digits_cnn"), images, "convolution", frozenset({STATIC})),
        Case("gpt-decode", decode_step, decoder, "decode", WEIGHTS, (HERE / "decode.py", *MODELS)),
    ]
    return {case.name: case for case in found}


def find(name: str) -> Case:
    """A built-in case, a product `gemm-MxKxN`, or any model as the commands take it: all peers
    then.
    """
    known = models()
    if name in known:
        return known[name]
    if sizes := re.fullmatch(r"gemm-(\d+)x(\d+)x(\d+)", name):
        return _product(*map(int, sizes.groups()))
    pipelines = ("float", "int8-dynamic", "int8-static")

    def build() -> Model:
        model = load_model(name)
        assert isinstance(model, Model), "a file has no JAX function to export"
        return model

    return Case(name.replace("/", "_").replace(":", "."), build, pipelines, "model", INT8)


ROWS = (1, 4, 16, 64, 128, 512)
SIDES = (256, 1024, 4096)
WORK = 3.2e8  # operations of a call, at least: enough to be timed
ROOM = 48e6  # bytes of int8 weights where rows are few: more than the caches hold


def products(rows: tuple[int, ...] = ROWS, sides: tuple[int, ...] = SIDES) -> list[Case]:
    """A product for every shape."""
    return [_product(m, k, n) for m in rows for k in sides for n in sides]


def _product(m: int, k: int, n: int) -> Case:
    """f32[M, K] x f32[K, N], several of different data in one program."""
    copies = _copies(m, k, n)
    return Case(
        f"gemm-{m}x{k}x{n}",
        partial(product, m, k, n, copies),
        ("int8-dynamic recovery=false", "int8-static recovery=false"),
        "product",
        INT8,
        (HERE / "product.py",),
        copies,
    )


def _copies(m: int, k: int, n: int) -> int:
    wanted = max(WORK / (2 * m * k * n), ROOM / (k * n) if m <= 16 else 1)
    return int(min(16, max(1, math.ceil(wanted))))
