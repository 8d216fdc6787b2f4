"""Every reader of files that others may have written, each with a few small valid files.

Readers of the first kind run here; those behind a process (`jq.base.guard`) may crash there, and
answer with a `UserError` all the same.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from jax import export

from jq.artifact.load import read_manifest
from jq.artifact.parameters import read_index, write_parameters
from jq.artifact.signature import SIGNATURE, sign, verify
from jq.base.npz import read, read_array
from jq.base.system.folders import data_file, data_names
from jq.device.forms.canonical.base import Simple
from jq.device.forms.table import Content
from jq.device.forms.tosa import write as write_tosa
from jq.device.network import Tensor
from jq.formats.integer_functions import Output
from jq.formats.requantize import DOUBLE
from jq.frontends.gguf import describe_gguf, load_gguf
from jq.frontends.onnx import load_checked
from jq.frontends.onnx.describe import describe_onnx
from jq.frontends.safetensors import read_file
from jq.frontends.tosa import load_tosa
from jq.frontends.tracing.entry import trace
from jq.language.decoder.gguf import read_gguf
from jq.language.decoder.huggingface import read_config, read_huggingface
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.saved import load as load_saved
from jq.language.store import MANIFEST, Options, described
from jq.language.tokenizer import tokenizer_of_gguf
from jq.passes.pipeline import load_pipeline
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges
from jq.target.target import load_target
from tests.support.decoders import CASES, write_folder, write_gguf
from tests.trust.artifacts import SAVED

MODULE = """module @m attributes {jq.encodings = {}} {
  func.func public @main(%x: tensor<4x8xf32> {jax.arg_info = "x"}) -> (tensor<4x2xf32>) {
    %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0], [1.0, 2.0],
      [3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]> : tensor<8x2xf32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    %1 = call @f(%0) : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }
  func.func private @f(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.tanh %x : tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
}
"""


@dataclass(frozen=True)
class Reader:
    """Attributes:
    file: the name under which it finds its file.
    read: reads the file at a path.
    seeds: valid files, made in a folder that is empty.
    json: whether values are changed, besides bytes.
    guarded: whether it reads in a process of its own.
    """

    file: str
    read: Callable[[Path], object]
    seeds: Callable[[Path], list[bytes]]
    json: bool = False
    guarded: bool = False


def _gguf(folder: Path) -> list[bytes]:
    for i, case in enumerate(list(CASES)[:2]):
        write_gguf(case, folder / f"{i}")
    writer = gguf.GGUFWriter(folder / "small", "test")
    writer.add_array("list", ["a", "b"])
    writer.add_uint32("number", 7)
    writer.add_tensor("a.weight", np.zeros((3, 5), np.float32))
    packed = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return _contents(folder)


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def _read_gguf(path: Path) -> None:
    describe_gguf(path), load_gguf(path)
    tokenizer_of_gguf(read_gguf(path)[2].metadata, str(path)).encode("a b")


def _ranges(_: Path) -> list[bytes]:
    counted = json.loads(Ranges({"a:0": Range(-1.0, 2.0)}, 3, "minmax", model="0" * 64).text())
    counted["smoothing"] = {"w": [1, 0, -3]}
    return [json.dumps(counted).encode()]


def _toml(kind: str) -> Callable[[Path], list[bytes]]:
    return lambda _: [data_file(kind, name).read_bytes() for name in data_names(kind)]


def _npz(folder: Path) -> list[bytes]:
    np.savez(folder / "a.npz", arg0=np.arange(6.0), arg1=np.zeros((2, 3), np.int8))
    np.savez_compressed(folder / "b.npz", x=np.ones((4, 4), np.float16, order="F"))
    return _contents(folder)


def _npy(folder: Path) -> list[bytes]:
    np.save(folder / "a.npy", np.arange(6))
    return _contents(folder)


def _parameters(kind: str) -> Callable[[Path], list[bytes]]:
    def made(folder: Path) -> list[bytes]:
        arrays = {"a": np.arange(6.0), "b/c:codes": np.ones((2, 3), np.int8)}
        write_parameters(folder / f"w.{kind}", arrays)
        return _contents(folder)

    return made


def _beside(name: str) -> Callable[[Path], list[bytes]]:
    """One file of a folder of Hugging Face; the others stay beside it."""

    def made(folder: Path) -> list[bytes]:
        seeds = []
        for case in CASES:
            write_folder(case, folder / case)
            seeds.append((folder / case / name).read_bytes())
        return seeds

    return made


def _config(path: Path) -> None:
    if not (path.parent / "model.safetensors").exists():
        for name in write_folder(next(iter(CASES)), path.parent / "other").iterdir():
            if name.name != path.name:
                shutil.copy(name, path.parent)
    read_huggingface(path.parent)


def _saved(folder: Path) -> list[bytes]:
    """The description of a language model that was compiled ahead."""
    config = read_config(write_folder(next(iter(CASES)), folder))
    known = {"version": 2, "config": asdict(config), "options": asdict(Options())}
    listed = {"tokenizer/tokenizer.json": {"bytes": 2, "sha256": "0" * 64}}
    return [json.dumps(known | {"files": files}).encode() for files in ({}, listed)]


def _program(_: Path) -> list[bytes]:
    tensors = [[[1, 4], "int32"], [[], "float32"]]
    found = {"inputs": tensors, "outputs": tensors, "cpu": ["x86_64", ["avx2", "fma"]]}
    found |= {"grows": [True]}
    return [json.dumps(found).encode()]


def _onnx(folder: Path) -> list[bytes]:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((8, 2), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Softmax", ["y"], ["z"], axis=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 8]), ("z", ["n", 2]))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    opsets = [helper.make_opsetid("", 18)]
    found: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return [found]


def _tosa(_: Path) -> list[bytes]:
    """A convolution of int8 and a transpose."""
    weight = np.ones((3, 2, 2, 2), np.int8)
    x, w, y, z = (
        Tensor(name, shape, "int8", np.full(1, 0.5, np.float32), np.ones(1, np.int32), data)
        for name, shape, data in (
            ("x", (1, 4, 4, 2), None),
            ("w", weight.shape, weight),
            ("y", (1, 3, 3, 3), None),
            ("z", (1, 3, 3, 3), None),
        )
    )
    w = replace(w, zero_point=np.zeros(1, np.int32))
    geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)], "dilation": [1, 1]}
    numbers = {"bias": np.zeros(1, np.int64), "factor": np.array([0.25])}
    out = Output(0.5, 1, -128, 100)
    steps = [
        Simple("conv2d", "conv", (x, w), y, geometry, numbers, out),
        Simple("transpose", "move", (y,), z, {"permutation": [0, 3, 1, 2]}),
    ]
    return [write_tosa(Content(steps, [x], [z], DOUBLE))]


def _tflite(_: Path) -> list[bytes]:
    """A convolution of int8, a softmax and a mean."""
    from jq.frontends.tflite.schema import OPERATORS, SCHEMA

    def tensor(name: str, shape: list[int], dtype: int, buffer: int = 0) -> dict[str, Any]:
        grid = {"quantization": {"scale": [0.5], "zero_point": [1 if name == "x" else 0]}}
        found = {"shape": shape, "type": dtype, "buffer": buffer, "name": name}
        return found | (grid if dtype == 9 else {})

    tensors = [
        tensor("x", [1, 4, 4, 2], 9),
        tensor("w", [3, 2, 2, 2], 9, 1),
        tensor("y", [1, 4, 4, 3], 9),
        tensor("z", [1, 4, 4, 3], 9),
        tensor("axes", [2], 2, 2),
        tensor("mean", [1, 3], 9),
    ]
    window = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    calls = [
        ([0, 1], 2, ("Conv2DOptions", window)),
        ([2], 3, ("SoftmaxOptions", {"beta": 1.0})),
        ([3, 4], 5, ("ReducerOptions", {"keep_dims": False})),
    ]
    operators = [
        {"opcode_index": i, "inputs": inputs, "outputs": [output], "builtin_options": options}
        for i, (inputs, output, options) in enumerate(calls)
    ]
    codes = [{"builtin_code": n} for n in (OPERATORS["CONV_2D"][0], 25, 40)]
    data = [np.arange(24, dtype=np.uint8), np.array([1, 2], np.int32).view(np.uint8)]
    graph = {"tensors": tensors, "inputs": [0], "outputs": [5], "operators": operators}
    buffers = [{}, *({"data": each} for each in data)]
    model = {"version": 3, "operator_codes": codes, "subgraphs": [graph], "buffers": buffers}
    return [SCHEMA.encode("Model", model)]


def _bytecode(_: Path) -> list[bytes]:
    from jq.ir import parse_module

    buffer = io.BytesIO()
    parse_module(MODULE.encode()).operation.write_bytecode(buffer)
    return [buffer.getvalue()]


def _exported(_: Path) -> list[bytes]:
    import jax
    import jax.numpy as jnp

    found = export.export(jax.jit(lambda x: {"y": jnp.tanh(x)}))(np.zeros((2, 3), np.float32))
    return [bytes(found.serialize())]


def _tokenizer(_: Path) -> list[bytes]:
    vocabulary = {"a": 0, "b": 1, "ab": 2, "[UNK]": 3}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "unk_token": "[UNK]"}
    cuts = {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False}
    added = [{"id": 3, "content": "[UNK]", "special": True, "normalized": False}]
    added[0] |= {"single_word": False, "lstrip": False, "rstrip": False}
    whole = {"version": "1.0", "added_tokens": added, "pre_tokenizer": cuts, "model": model}
    return [json.dumps(whole).encode()]


def _signature(path: Path) -> None:
    verify(path.parent, b"{}", [_keys(path.parent)[1]])


def _signed(folder: Path) -> list[bytes]:
    return [sign(b"{}", _keys(folder)[0])]


def _keys(folder: Path) -> tuple[Path, Path]:
    """Files of a private and a public key, always the same ones."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, plain))
    (folder / "pub.pem").write_bytes(key.public_key().public_bytes(pem, public))
    return folder / "key.pem", folder / "pub.pem"


READERS: dict[str, Reader] = {
    "gguf": Reader("m.gguf", _read_gguf, _gguf),
    "manifest": Reader(
        "manifest.json",
        lambda path: read_manifest(path.parent),
        lambda _: [(SAVED / "manifest.json").read_bytes()],
        json=True,
    ),
    "ranges": Reader("ranges.json", Ranges.load, _ranges, json=True),
    "pipeline": Reader("p.toml", lambda path: load_pipeline(str(path)), _toml("pipelines")),
    "target": Reader("t.toml", lambda path: load_target(str(path)), _toml("targets")),
    "npz": Reader("in.npz", read, _npz),
    "npy": Reader("in.npy", read_array, _npy),
    "irpa": Reader("w.irpa", read_index, _parameters("irpa")),
    "safetensors": Reader("w.safetensors", read_file, _parameters("safetensors")),
    "parameters": Reader("w.safetensors", read_index, _parameters("safetensors")),
    "config": Reader("config.json", _config, _beside("config.json"), json=True),
    "language": Reader(MANIFEST, lambda path: load_saved(path.parent), _saved, json=True),
    "program": Reader("1x4.json", described, _program, json=True),
    "signature": Reader(SIGNATURE, _signature, _signed, json=True),
    "onnx": Reader("m.onnx", describe_onnx, _onnx),
    "tflite": Reader("m.tflite", describe_onnx, _tflite),
    "tosa": Reader("m.tosa", load_tosa, _tosa),
    "mlir": Reader("m.mlir", trace, lambda _: [MODULE.encode()], guarded=True),
    "mlirbc": Reader("m.mlirbc", trace, _bytecode, guarded=True),
    "jaxexport": Reader("m.jaxexport", trace, _exported, guarded=True),
    "onnx-whole": Reader("m.onnx", lambda path: load_checked(path, {"n": 2}), _onnx, guarded=True),
    "tflite-whole": Reader("m.tflite", load_checked, _tflite, guarded=True),
    "tokenizer": Reader(
        "tokenizer.json",
        lambda path: tokenizer_of_folder(path.parent),
        _tokenizer,
        json=True,
        guarded=True,
    ),
}
