"""TOSA as MLIR text (`.tosa.mlir`) of the same operators as the flatbuffer; IREE is its reader.

Attributes are those of MLIR's TOSA dialect, whose names are the flatbuffer's:
https://mlir.llvm.org/docs/Dialects/TOSA/."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.device.forms.table import Arrays, Content
from jq.device.forms.tosa import written
from jq.device.forms.tosa.writer import Writer
from jq.frontends.tosa.schema import PROPAGATE, ROUNDINGS, TYPES
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.iree.runtime import Executable

_ELEMENTS = {"bool": "i1", **{f"int{n}": f"i{n}" for n in (4, 8, 16, 32, 48)}}
_BY_NUMBER = {TYPES[name]: kind for name, kind in _ELEMENTS.items()}
_ROUNDINGS = {n: f"{name.upper()}_ROUND" for name, n in ROUNDINGS.items()}
_NARROW = {"perms": "i32"}  # vectors of attributes are of 64 bits but these


def write(content: Content) -> bytes:
    """The text. Raises as `jq.device.forms.tosa.write`."""
    inputs, outputs, writer = content.inputs, content.outputs, written(content)
    printer = _Printer(writer, [t.name for t in inputs])
    taken = ", ".join(f"{printer.values[t.name]}: {printer.kinds[t.name]}" for t in inputs)
    lines = [printer.line(op) for op in writer.operators]
    values, kinds = ([found[t.name] for t in outputs] for found in (printer.values, printer.kinds))
    given, of = ", ".join(values), ", ".join(kinds)
    body = "\n".join([*lines, f"  return {given} : {of}"])
    return f"func.func @main({taken}) -> ({of}) {{\n{body}\n}}\n".encode()


def run(data: bytes, calls: Sequence[Arrays]) -> list[list[np.ndarray]]:
    """The outputs by IREE, which compiles the text for this processor."""
    flags = [*HOST_FLAGS, "--iree-input-type=tosa"]
    made = compile_module(data, flags=flags, keep_dump=False)
    loaded = Executable.load(made.vmfb)
    return [[np.asarray(y) for y in loaded(*inputs)] for inputs in calls]


READERS = {"IREE": run}


class _Printer:
    """Values and types of tensors and shapes by name, and lines of operators."""

    def __init__(self, writer: Writer, inputs: Sequence[str]) -> None:
        self.values = {name: f"%arg{i}" for i, name in enumerate(inputs)}
        self.kinds = {t["name"]: _type(t["shape"], _BY_NUMBER[t["type"]]) for t in writer.tensors}
        self.kinds |= {s["name"]: f"!tosa.shape<{s['rank']}>" for s in writer.shapes}
        self.data = {t["name"]: t["data"] for t in writer.tensors if "data" in t}
        self.data |= {s["name"]: s["data"] for s in writer.shapes}
        self.elements = {t["name"]: _BY_NUMBER[t["type"]] for t in writer.tensors}

    def line(self, op: Mapping[str, Any]) -> str:
        kind, attributes = op["attribute"]
        (name,) = op["outputs"]
        self.values[name] = f"%{len(self.values)}"
        operands = ", ".join(self.values[i] for i in op["inputs"])
        types = ", ".join(self.kinds[i] for i in op["inputs"])
        if kind.startswith("CONST"):
            said = f"values = {self._dense(name)}"
        else:
            element = self.elements[name]
            said = ", ".join(f"{k} = {_attribute(k, v, element)}" for k, v in attributes.items())
        properties = f" <{{{said}}}>" if said else ""
        called = f'"tosa.{kind.lower()}"({operands}){properties}'
        return f"  {self.values[name]} = {called} : ({types}) -> {self.kinds[name]}"

    def _dense(self, name: str) -> str:
        """The elements of a constant; those of a shape are indices."""
        data = bytes(self.data[name])
        if name not in self.elements:
            numbers = np.frombuffer(data, "<i8").tolist()
            return f"dense<{numbers}> : tensor<{len(numbers)}xindex>"
        kind = self.kinds[name]
        if self.elements[name] == "i1":
            return f"dense<{str(bool(data[0])).lower()}> : {kind}"
        width = int(self.elements[name][1:]) // 8
        whole = data[:width] if data == data[:width] * (len(data) // width) else data
        return f'dense<"0x{whole.hex().upper()}"> : {kind}'


def _type(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def _attribute(key: str, value: Any, element: str) -> str:
    """An attribute of the flatbuffer as the dialect has it."""
    if key == "nan_mode":
        assert value == PROPAGATE
        return "#tosa.nan_mode<PROPAGATE>"
    if key == "rounding_mode":
        return f"#tosa.rounding_mode<{_ROUNDINGS[value]}>"
    if key == "acc_type":
        return _BY_NUMBER[value]
    if key in ("min_val", "max_val"):
        number = np.asarray(value, np.uint8).view(f"<i{int(element[1:]) // 8}")
        return f"{number[0]} : {element}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, Sequence):
        return f"array<{_NARROW.get(key, 'i64')}: {', '.join(map(str, value))}>"
    return f"{value} : i32"
