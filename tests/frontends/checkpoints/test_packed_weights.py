"""Quantized matrices as others store them; `scripts/oracles/write_packed_weights.py` wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jq.formats.tensor import QuantizedTensor
from jq.frontends.checkpoints.method import unpacked_tensors
from jq.frontends.safetensors import read_file

FILE = Path(__file__).with_name("packed_weights.safetensors")
# Each of them as the program that wrote it decodes it; the steps of float16 where it does so in it.
STEP = {"int8": 2**-10, "awq": 2**-10}
LAYOUTS = (
    *("gptq-2", "gptq-3", "gptq-4", "gptq-8", "awq", "nf4", "nf4-nested", "int8"),
    *("packed-4", "packed-4-zero", "integers", "floats", "fp8"),
)


def configs():
    header = FILE.read_bytes()
    size = int.from_bytes(header[:8], "little")
    return json.loads(json.loads(header[8 : 8 + size])["__metadata__"]["configs"])


def test_every_layout_is_read():
    assert set(configs()) == set(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_weight_is_what_its_writer_decodes(layout):
    parts = {
        name.partition("/")[2]: array
        for name, array in read_file(FILE).items()
        if name.startswith(f"{layout}/")
    }
    decoded = parts.pop("decoded")
    tensors = {f"model.layers.0.mlp.up_proj.{name}": array for name, array in parts.items()}
    found = unpacked_tensors(configs()[layout], tensors, str(FILE))
    (name,) = found
    assert name == "model.layers.0.mlp.up_proj.weight"
    weight = found[name]
    assert isinstance(weight, QuantizedTensor)
    step = STEP.get(layout, 2**-22)
    assert np.allclose(weight.decode(), decoded, rtol=step, atol=step * np.abs(decoded).max() / 16)
