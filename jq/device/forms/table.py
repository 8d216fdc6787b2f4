"""The forms that there are: one line each.

The module of a form has `write(content) -> bytes`, and `run(data, calls) -> results`, the form's
own reference, for the arrays of codes or floats of several calls; or `READERS`, several such
functions by their names, of which the first has to give the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np

from jq.base.errors import UserError, check_known, known
from jq.device.forms.canonical.base import Simple
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling

Ends = Literal["int8", "float"]
Arrays = Sequence[np.ndarray]
Run = Callable[[bytes, Sequence[Arrays]], list[list[np.ndarray]]]


@dataclass(frozen=True)
class Content:
    """The contents of a file. With `float` ends, `quantize` and `dequantize` are steps too;
    `shared_sums` is the device's."""

    steps: Sequence[Simple]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    rescaling: Rescaling
    ends: Ends = "int8"
    shared_sums: bool = True


class Writer(Protocol):
    """The interface of a form's module."""

    def write(self, content: Content) -> bytes:
        """The file. `UserError` names the layer of a step that the form does not have."""

    def run(self, data: bytes, calls: Sequence[Arrays]) -> list[list[np.ndarray]]:
        """Outputs of each call by the form's reference; `UserError` where it is missing."""


@dataclass(frozen=True)
class Form:
    """A form: the module that writes it, the suffixes of its files, and the target whose arithmetic
    its own reference has (used where none is given)."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    target: str

    @property
    def writer(self) -> Writer:
        return cast("Writer", import_module(self.module))

    @property
    def readers(self) -> dict[str, Run]:
        """The form's references, by name."""
        return getattr(self.writer, "READERS", {"reference": self.writer.run})


FORMS = {
    form.name: form
    for form in (
        Form("tosa", "jq.device.forms.tosa", (".tosa",), "npu-int8"),
        Form("tosa-mlir", "jq.device.forms.tosa.text", (".tosa.mlir",), "npu-int8"),
        Form("tflite", "jq.device.forms.tflite", (".tflite",), "litert"),
        Form("onnx", "jq.device.forms.qdq", (".onnx",), "onnx-qdq"),
        # one line a form
    )
}


def form_of(path: Path, name: str | None) -> Form:
    """The form of this name, else the one that the suffix of a file says."""
    said = next((f.name for f in FORMS.values() if path.name.lower().endswith(f.suffixes)), None)
    if name is not None:
        check_known("form", name, FORMS)
        if said not in (None, name):
            hint = f"give the file a suffix of {name}: {', '.join(FORMS[name].suffixes)}"
            raise UserError(f"{path.name}: this suffix is of the form {said}", hint=hint)
        return FORMS[name]
    if said is not None:
        return FORMS[said]
    suffixes = [s for form in FORMS.values() for s in form.suffixes]
    hint = f"{known(path.suffix, suffixes)}, or give --to (form=...)"
    raise UserError(f"{path.name}: no form has this suffix", hint=hint)


def method_of(writer: object, step: Simple, form: str) -> Callable[[Simple], None]:
    """The method of a writer that has the name of the step's kind, after an underscore."""
    if "wide" in step.numbers and not hasattr(writer, "wide_sums"):
        raise no_form("a rescale of sums of 64 bits", form, step.name)
    method: Any = getattr(writer, f"_{step.kind}", None)
    if method is None:
        raise no_form(step.kind.replace("_", " "), form, step.name)
    return cast("Callable[[Simple], None]", method)


def no_form(what: str, form: str, op: str) -> UserError:
    """The error for a step that a form cannot hold."""
    return UserError(f"{what} has no form in {form}", op=op)
