"""A GGUF file's blocks as the parameters of a JAX model: the same bytes, the same numbers."""

from __future__ import annotations

import gguf
import jax
import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from jq.frontends.gguf import load_gguf

TYPES = {
    "embed": gguf.GGMLQuantizationType.Q8_0,
    "up": gguf.GGMLQuantizationType.Q4_K,
    "down": gguf.GGMLQuantizationType.Q6_K,
}
SHAPES = {"embed": (96, 256), "up": (512, 256), "down": (256, 512)}


def model_fn(p, ids):
    x = p["embed"]["weight"][ids]
    h = jax.nn.gelu(x @ p["up"]["weight"].T)
    x = x + h @ p["down"]["weight"].T
    return x @ p["embed"]["weight"].T


def blocks(rng, shape, kind):
    """Blocks of the type: by the package where it encodes, else random bits with tame scales."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if kind == gguf.GGMLQuantizationType.Q8_0:
        return gguf.quantize((0.2 * rng.standard_normal(shape)).astype(np.float32), kind)
    count = shape[0] * shape[1] // block
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    halves = (rng.standard_normal((count, 2)) * 2e-4).astype(np.float16).view(np.uint8)
    if kind == gguf.GGMLQuantizationType.Q4_K:
        raw[:, :4] = halves
    else:  # Q6_K has its one scale last
        raw[:, -2:] = halves[:, :2]
    return raw.reshape(shape[0], -1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(path, "test")
    raw = {name: blocks(rng, SHAPES[name], kind) for name, kind in TYPES.items()}
    for name, data in raw.items():
        writer.add_tensor(f"{name}.weight", data, raw_dtype=TYPES[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    decoded = {n: {"weight": gguf.dequantize(data, TYPES[n])} for n, data in raw.items()}
    return path, raw, decoded


IDS = np.array([[3, 95, 0, 41]], np.int32)


def test_the_program_computes_what_the_package_decodes(made, tmp_path):
    path, raw, decoded = made
    model = jq.Model(model_fn, load_gguf(path).params, (IDS,))
    compiled = jq.load(jq.compile(model, "float").save(tmp_path / "artifact"))
    got = compiled(IDS)
    with jax.default_matmul_precision("highest"):
        want = np.asarray(model_fn(decoded, IDS))
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()

    audit = compiled.audit()
    assert audit.verified, audit.warnings
    sizes = {w.name.split("/")[0]: w.stored_bytes / np.prod(w.shape) for w in audit.weights}
    assert sizes == {"embed": 1.0625, "up": 0.5625, "down": 0.8203125}
    module = (tmp_path / "artifact" / "model.vmfb").read_bytes()
    for data in raw.values():
        assert data.tobytes() in module  # byte for byte, as in the file


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int4-weight-only"])
def test_other_pipelines_keep_the_blocks(made, pipeline):
    path, raw, decoded = made
    model = jq.Model(model_fn, load_gguf(path).params, (IDS,))
    compiled = jq.compile(model, pipeline)
    assert compiled.audit().verified
    packed = {op["name"].split("/")[0] for op in compiled.manifest.ops if op["kernel"]}
    kept = [data for name, data in raw.items() if name not in packed]  # others as kernels read them
    assert all(data.tobytes() in compiled.vmfb for data in kept)
    want = np.asarray(model_fn(decoded, IDS))
    assert cosine(compiled(IDS), want) > 0.999
    decisions = {op["decision"] for op in compiled.manifest.ops if op["op"] == "dot_general"}
    assert decisions == {"integer" if pipeline == "int8-dynamic" else "weight-only"}


FEW = ["IQ4_XS", "IQ2_XXS", "IQ1_M", "TQ1_0"]


@pytest.mark.parametrize("pipeline", ["float", "int8-dynamic"])
def test_types_of_few_bits_run(pipeline, tmp_path):
    """Products side by side; with float activations the bytes of the file stay as they are."""
    rng, path = np.random.default_rng(2), tmp_path / "few.gguf"
    w = (0.05 * rng.standard_normal((48, 256))).astype(np.float32)
    x = rng.standard_normal((3, 256)).astype(np.float32)
    writer, decoded, stored = gguf.GGUFWriter(path, "test"), [], []
    for name in FEW:
        fmt, kind = get_format(name), gguf.GGMLQuantizationType[name]
        enc = Encoding(fmt.name, w.shape, fmt.default_block(w.shape, -1))
        raw = fmt.encode(w, enc)["blocks"].view(np.uint8).reshape(len(w), -1)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
        decoded.append(gguf.dequantize(raw, kind))
        stored.append(raw.tobytes())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def fn(p, x):
        return [x @ p[name]["weight"].T for name in FEW]

    compiled = jq.compile(jq.Model(fn, load_gguf(path).params, (x,)), pipeline)
    for got, weight in zip(compiled(x), decoded, strict=True):
        want = x.astype(np.float64) @ weight.T.astype(np.float64)
        if pipeline == "float":
            assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
        assert cosine(got, want) > 0.999
    if pipeline == "float":
        assert all(data in compiled.vmfb for data in stored)


def test_large_models_keep_them_beside_the_module(made, tmp_path):
    from jq import api
    from jq.iree.handover import handover

    path, raw, _ = made
    model = jq.Model(model_fn, load_gguf(path).params, (IDS,))
    handed = handover(api.rewrite(model, pipeline="float")["target"], inline_limit=0)
    held = {key: array for key, array in handed.parameters.items() if key.endswith(":blocks")}
    assert {k.split("/")[0]: a.tobytes() for k, a in held.items()} == {
        name: data.tobytes() for name, data in raw.items()
    }


def cosine(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)
