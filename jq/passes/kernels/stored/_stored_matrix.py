"""Stored weights as matrices [N, K] that kernels read.

Where that is another order of the data, the weight is stored anew: of a stack that a loop cuts, the
whole stack, and the loop cuts that. The data are made when they are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.base.errors import FormatError
from jq.formats import Encoding
from jq.ir import OPS, Op, Program, at, dtype_of, i64_array, ir, known_parts, like, maker, shape_of
from jq.ir.build import replace as replace_op
from jq.ir.encodings import describe_parts
from jq.ir.layout import MatrixForm
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.passes.kernels._kernel import NoKernel

Values = dict[str, ir.Value]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Stored:
    """A stored tensor: its encoding, its parts in the program, and its name."""

    encoding: Encoding
    parts: Values
    tensor: str

    @staticmethod
    def of(encoding: Encoding, parts: Values, tensor: str) -> "Stored":
        return Stored(encoding, {k: v for k, v in parts.items() if k != "sum"}, tensor)


@dataclass(frozen=True)
class _Moved:
    """A weight that was stored anew: what it was (names of its parts) and what it is."""

    tensor: str
    names: dict[str, str | None]
    form: MatrixForm
    values: Values


@dataclass
class Matrices:
    """Every stored weight of a program in every order that is asked for, once."""

    program: Program
    moved: dict[Any, _Moved] = field(default_factory=dict)

    def get(
        self, stored: Stored, free: Sequence[int], contracted: Sequence[int]
    ) -> tuple[Encoding, Values]:
        """Encoding (of [N, K]) and parts; `NoKernel` says why there is no such matrix."""
        form = _form(stored.encoding, 0, free, contracted)
        names = {k: self.program.weight_name(v) for k, v in stored.parts.items()}
        if form.is_reshape and all(names.values()):
            return form.encoding, stored.parts
        known = known_parts(self.program, stored.parts)
        if known is not None:  # a piece, or several pieces, of weights: no copy at run time
            return form.encoding, self._store(stored.tensor, names, known, form)
        if form.is_reshape:
            return form.encoding, stored.parts
        return self._layer(stored, free, contracted)

    def _layer(
        self, stored: Stored, free: Sequence[int], contracted: Sequence[int]
    ) -> tuple[Encoding, Values]:
        """Stores one layer of a stack: the whole stack is stored anew."""
        cuts = {k: _Cut.behind(self.program, v) for k, v in stored.parts.items()}
        arrays = {k: self.program.weights[c.name] for k, c in cuts.items()}
        first, enc = next(iter(stored.parts)), stored.encoding
        lead = arrays[first].ndim - len(shape_of(stored.parts[first]))
        layers = arrays[first].shape[:lead]
        own = arrays.get("scale", arrays[first]).shape[:lead] == layers
        whole = enc.with_shape(layers + enc.shape, (int(own),) * lead + enc.block)
        form = _form(whole, lead, *([a + lead for a in axes] for axes in (free, contracted)))
        values = self._store(stored.tensor, {k: c.name for k, c in cuts.items()}, arrays, form)
        new = form.encoding
        return new.with_shape(new.shape[lead:], new.block[lead:]), {
            k: cuts[k].of(v) for k, v in values.items()
        }

    def _store(
        self, tensor: str, names: dict[str, str | None], arrays: Arrays, form: MatrixForm
    ) -> Values:
        data = [(a.__array_interface__["data"][0], a.strides) for a in arrays.values()]
        key = (form, *data)
        if key not in self.moved:
            made = form.parts(arrays)
            values = {k: self.program.add_weight(f"{tensor}:{k}", v) for k, v in made.items()}
            self.moved[key] = _Moved(tensor, names, form, values)
            entry = self.program.encodings.get(tensor)
            if entry is not None and all(names.values()):
                self.program.encodings[tensor] = {**entry, "parts": describe_parts(made)}
        return self.moved[key].values

    def share(self) -> None:
        """Whatever else reads the whole of a weight that was stored anew reads its new parts."""
        for moved in self.moved.values():
            source = moved.form.source
            sizes = [source.shape[a] for a in moved.form.order]
            back = [int(i) for i in np.argsort(moved.form.order)]
            for op in self.program.walk():
                marker = match(op, DEQUANTIZE)
                if marker is None or not all(moved.names.values()):
                    continue
                read = {k: self.program.weight_name(v) for k, v in marker.parts.items()}
                if {k: n for k, n in read.items() if k != "sum"} != moved.names:
                    continue
                with at(op):
                    dtype, enc = dtype_of(op.results[0]), moved.form.encoding
                    new = dequantize(self.program, enc, moved.values, dtype, tensor=moved.tensor)
                    replace_op(op, [OPS.transpose(OPS.reshape(new, sizes), back)])


def _form(enc: Encoding, lead: int, free: Sequence[int], contracted: Sequence[int]) -> MatrixForm:
    try:
        return MatrixForm(enc, lead, tuple(free), tuple(contracted))
    except FormatError as error:
        raise NoKernel(error.message) from error


@dataclass(frozen=True)
class _Cut:
    """Ops that cut a layer from the weight `name`: they take one index, or drop the axis."""

    name: str
    ops: tuple[Any, ...]

    @staticmethod
    def behind(program: Program, value: ir.Value) -> "_Cut":
        ops: list[Any] = []
        while (name := program.weight_name(value)) is None:
            if maker(value) is None or not _cuts_first_axis(value.owner):
                raise NoKernel("the weight is computed, or cut along other than its leading axes")
            ops.insert(0, value.owner)
            value = value.owner.operands[0]
        return _Cut(name, tuple(ops))

    def of(self, value: ir.Value) -> ir.Value:
        """The same layer of another stack."""
        for op in self.ops:
            shape = (1, *shape_of(value)[1:])
            zeros = [0] * (len(shape) - 1)
            if op.operation.name == "stablehlo.reshape":
                value = OPS.reshape(value, shape[1:])
            elif op.operation.name == "stablehlo.dynamic_slice":
                start = op.operands[1]
                zero = OPS.constant(np.zeros((), dtype_of(start)))
                starts = [start, *[zero] * len(zeros)]
                sizes = {"slice_sizes": i64_array(shape)}
                value = like(op, [value, *starts], shape, dtype_of(value), **sizes)
            else:
                start = ir.DenseI64ArrayAttr(op.attributes["start_indices"])[0]
                value = OPS.slice(value, [start, *zeros], [start + 1, *shape[1:]])
        return value


def _cuts_first_axis(op: Op) -> bool:
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    if op.operation.name == "stablehlo.reshape":
        return before == (1, *after)
    return op.operation.name in ("stablehlo.slice", "stablehlo.dynamic_slice") and after == (
        1,
        *before[1:],
    )
