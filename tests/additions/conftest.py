"""Entries that a test adds to a registry are taken out of it again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import jq
import jq.frontends.onnx.operators  # all are there before one is added
from jq.formats import Format
from jq.frontends.onnx.registry import OPERATORS
from jq.frontends.tracing.source import READERS
from jq.ir.ops.base import OpRule
from jq.ir.ops.lookup import known_ops
from jq.kernels import Kernel
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.mixers import Mixer
from jq.passes.base import Pass, known_passes


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    known_passes(), known_ops()
    kinds = (Architecture, Format, Kernel, Mixer, OpRule, Pass)
    registries = [*(kind.registry for kind in kinds), OPERATORS, READERS]
    before = [dict(registry) for registry in registries]
    yield
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)


@pytest.fixture
def dense() -> jq.Model:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 32)).astype(np.float32)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    return jq.Model(lambda p, x: x @ p["w"], {"w": weight}, (x,), calibration=[(x,)])
