"""TOSA 1.0 flatbuffers (`.tosa`) of an integer network, bit for bit.

Specification: https://www.mlplatform.org/tosa/tosa_spec.html. A rescale is RESCALE with the
mantissa and `shift = 31 - exponent`; DOUBLE_ROUND and SINGLE_ROUND are the two roundings of
`jq.formats.requantize`. Ends are integers: TOSA's integer profile has no floats."""

import subprocess
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from jq.base.errors import CompilerError, UserError
from jq.base.system.child import python_command
from jq.base.system.temporary import temporary_folder
from jq.device.forms.table import Arrays, Content
from jq.device.forms.tosa.builder import Builder
from jq.device.forms.tosa.writer import Writer
from jq.device.forms.tosa_reference import arrays_of
from jq.frontends.tosa.schema import SCHEMA


def write(content: Content) -> bytes:
    """The file.

    Raises:
        UserError: a step that TOSA's integer profile does not have, by the name of its layer."""
    ends = ([t.name for t in ts] for ts in (content.inputs, content.outputs))
    return file(written(content), *ends)


def file(writer: Builder, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The file of what was put together, from some tensors to others."""
    block = {"name": "main", "inputs": inputs, "outputs": outputs}
    block |= {k: getattr(writer, k) for k in ("operators", "tensors", "shapes")}
    version = {"major": 1, "minor": 0, "patch": 0, "draft": False}
    graph = {"version": version, "regions": [{"name": "main", "blocks": [block]}]}
    return SCHEMA.encode("Graph", graph)


def written(content: Content) -> Writer:
    """The operators, tensors and shapes of all steps, in order."""
    if content.ends != "int8":
        raise UserError("TOSA's integer profile has no floats", hint="give --ends int8")
    if content.rescaling.rounding == "float32":
        hint = "choose a target that rounds once or twice: `jaxq list targets`"
        raise UserError("TOSA has no rescale by a float32 number", hint=hint)
    writer = Writer(content.rescaling, content.shared_sums)
    for tensor in content.inputs:
        writer.tensor(tensor.name, tensor.shape, tensor.dtype)
    for step in content.steps:
        writer.step(step)
    for tensor in {t.name: t for t in content.outputs if t.data is not None}.values():
        writer.stored(tensor.name, tensor.values)
    return writer


def run(data: bytes, calls: Sequence[Arrays]) -> list[list[np.ndarray]]:
    """The outputs of Arm's reference model."""
    if find_spec("tosa_reference_model") is None:
        hint = "pip install --no-deps tosa-tools"
        raise UserError("TOSA's reference model is not installed", hint=hint)
    with temporary_folder() as folder:
        (folder / "model.tosa").write_bytes(data)
        for i, inputs in enumerate(calls):
            np.savez(folder / f"inputs{i}.npz", *inputs)
        command = python_command("jq.device.forms.tosa_reference", str(folder))
        ended = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise CompilerError(f"TOSA's reference model refuses the file: {said[-1]}")
        return [arrays_of(folder / f"outputs{i}.npz") for i in range(len(calls))]
