"""A module together with the data of its weights.

Weights are trailing arguments of `@main` in every level that we rewrite, and their data lives
beside the module as NumPy arrays: text stays readable, nothing large is copied or printed, and an
oracle runs the module by passing the arrays. They become constants, or out-of-line parameters, when
a module is handed over (`materialize`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from jq.base.errors import InternalError
from jq.base.registry import unused
from jq.formats import Deferred
from jq.ir.build import constant_of, settle_type
from jq.ir.mlir_context import at, bytecode_of, context, editing, parse_module, run_passes
from jq.ir.types import TensorSpec, dtype_of, shape_of, signature, tensor_type
from jq.ir.values import functions_of, is_read, last_of, maker, walk

WEIGHT = "jq.weight"  # argument attribute: the weight's name


@dataclass(eq=False)
class Program:
    """A StableHLO module whose one public function is `@main(inputs..., weights...)`.

    Attributes:
        module: the IR. Every function but `@main` is the decomposition of a composite.
        weights: name -> contiguous array (or `Deferred`), in the order of the trailing arguments.
        inputs, outputs: what the user passes and gets, in order.
        encodings: the float tensor's name -> description of how it is stored now.
        chosen: a weight's name -> the parts that recovery chose to store of it, which
            `place-weights` takes instead of plain rounding.
        in_tree, out_tree: JAX's structure of the tuple of inputs and of the result; None: flat.
        notes: what users are told: what of the model was left out, which passes were skipped."""

    module: ir.Module
    weights: dict[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    encodings: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    in_tree: Any = None
    out_tree: Any = None
    notes: tuple[str, ...] = ()
    decompositions: dict[str, str] = field(default_factory=dict)  # by key: equal ones are shared

    def __repr__(self) -> str:
        return f"<Program of {len(self.weights)} weights: {signature(self.inputs, self.outputs)}>"

    @property
    def main(self) -> func.FuncOp:
        for op in self.module.body.operations:
            if isinstance(op, func.FuncOp) and op.name.value == "main":
                return op
        raise InternalError("the module has no @main")

    @property
    def body(self) -> ir.Block:
        return self.main.entry_block

    def clone(self) -> "Program":
        """An independent copy of the IR; the arrays are shared."""
        with editing():
            module = parse_module(self.bytecode())
        names = ("weights", "encodings", "chosen", "decompositions")
        own: dict[str, Any] = {name: dict(getattr(self, name)) for name in names}
        return replace(self, module=module, **own)

    def __getstate__(self) -> dict[str, Any]:
        """The pickled state: the module as bytecode, all weights made. JAX's structure of inputs
        and results is left out: the copy takes and gives flat arrays."""
        weights = {name: np.asarray(array) for name, array in self.weights.items()}
        other = {"weights": weights, "module": self.bytecode(), "in_tree": None, "out_tree": None}
        return self.__dict__ | other

    def __setstate__(self, state: dict[str, Any]) -> None:
        with editing():
            module = parse_module(state["module"])
        self.__dict__.update(state | {"module": module})

    def tell(self, text: str) -> None:
        """Adds to the notes, once."""
        if text not in self.notes:
            self.notes = (*self.notes, text)

    # Weights

    def weight_name(self, value: ir.Value) -> str | None:
        """Name of the weight that `value` is, or None when it is something else."""
        if maker(value) is not None:
            return None
        arg = ir.BlockArgument(value)
        index = arg.arg_number - len(self.inputs)
        return None if index < 0 or arg.owner != self.body else list(self.weights)[index]

    def weight(self, name: str) -> ir.Value:
        return self.body.arguments[len(self.inputs) + list(self.weights).index(name)]

    def add_weight(self, name: str, array: np.ndarray | Deferred) -> ir.Value:
        """Appends a weight, which may be `Deferred`; a name in use gets `#2`, `#3`, ..."""
        if self.weights.get(name) is array:
            return self.weight(name)
        unique = unused(name, self.weights.__contains__)
        with editing():
            kind = tensor_type(array.shape, array.dtype)
            value = self.body.add_argument(kind, ir.Location.name(unique))
        if not isinstance(array, Deferred):
            array = np.ascontiguousarray(array).reshape(array.shape)
        self.weights[unique] = array
        return value

    def rename_weights(self, names: Mapping[str, str]) -> None:
        """Gives weights other names (`names`, by those that they have), where those are free."""
        renamed = dict[str, np.ndarray | Deferred]()
        for name, array in self.weights.items():
            wanted = names.get(name, name)
            free = wanted not in self.weights and wanted not in renamed
            renamed[wanted if free else name] = array
        self.weights = renamed
        self.refresh()

    def drop_unused_weights(self) -> bool:
        """Removes weights that no op reads; True when there were any."""
        body, first = self.body, len(self.inputs)
        numbers = enumerate(self.weights, first)
        unused = [(i, name) for i, name in numbers if not is_read(body.arguments[i])]
        for i, name in reversed(unused):
            body.erase_argument(i)
            del self.weights[name]
        if unused:
            self.refresh()
        return bool(unused)

    def drop_dead(self) -> None:
        """Erases ops that nothing needs, and then the weights that nothing reads."""
        self.run_passes("canonicalize")
        self.drop_unused_weights()

    def tidied(self, changed: bool) -> bool:
        """The same truth value; what is dead is dropped where it is true."""
        if changed:
            self.drop_dead()
        return changed

    def run_passes(self, *passes: str) -> None:
        """MLIR's own passes, as `jq.ir.run_passes` takes them."""
        self._settle()
        run_passes(self.module, *passes)

    @property
    def returned(self) -> list[ir.Value]:
        """The values that `@main` returns."""
        return list(last_of(self.body).operands)

    def return_values(self, values: Sequence[ir.Value]) -> None:
        """Makes `@main` return these instead; `outputs` still describes the model's own."""
        old = last_of(self.body)
        with at(old):
            func.ReturnOp(list(values))
        old.erase()
        self.refresh()

    def refresh(self) -> None:
        """Makes the function's type and argument attributes agree with its block."""
        settle_type(self.main)
        with editing():
            names = [None] * len(self.inputs) + list(self.weights)
            named = [_argument_attributes(n) for n in names]
            self.main.attributes["arg_attrs"] = ir.ArrayAttr.get(named)

    def _settle(self) -> None:
        """Weights are added by hundreds: the function is told of all of them at once."""
        if len(self.main.type.inputs) != len(self.body.arguments):
            self.refresh()

    # Views

    def walk(self) -> Iterator[ir.OpView]:
        """Every op of `@main`, nested regions included, in program order."""
        yield from walk(self.body)

    def walk_all(self) -> Iterator[ir.OpView]:
        """Every op of every function: what composites stand for, too."""
        for function in self.functions():
            yield from walk(function.entry_block)

    def functions(self) -> Iterator[func.FuncOp]:
        """Functions that have a body: `@main`, and what composites stand for."""
        return (f for f in functions_of(self.module).values() if not f.is_external)

    def verify(self) -> None:
        """Raises `InternalError` when the IR or the weights do not fit together."""
        self._settle()
        try:
            self.module.operation.verify()
        except ir.MLIRError as error:
            raise InternalError(f"invalid IR: {error}") from error
        args = self.body.arguments[len(self.inputs) :]
        if len(args) != len(self.weights):
            raise InternalError(f"{len(args)} weight arguments, {len(self.weights)} weights")
        for arg, (name, array) in zip(args, self.weights.items(), strict=True):
            if shape_of(arg) != array.shape or dtype_of(arg) != array.dtype:
                raise InternalError(f"weight is {array.dtype}{array.shape} but {arg.type}", op=name)

    def text(self, *, locations: bool = False, whole: bool = False) -> str:
        """Readable MLIR: weights are named arguments, large constants elided unless `whole`."""
        self._settle()
        whole_module, limit = self.module.operation, None if whole else 16
        return str(whole_module.get_asm(enable_debug_info=locations, large_elements_limit=limit))

    def bytecode(self) -> bytes:
        self._settle()
        return bytecode_of(self.module)

    def materialize(self) -> ir.Module:
        """A module of its own: the weights are constants, at locations named after them."""
        copy = self.clone()
        with context(), ir.InsertionPoint.at_block_begin(copy.body):
            for name in reversed(copy.weights):
                with ir.Location.name(name):
                    copy.weight(name).replace_all_uses_with(constant_of(copy.weights[name]))
        copy.drop_unused_weights()
        return copy.module


@lru_cache(maxsize=1 << 16)
def _argument_attributes(weight: str | None) -> ir.DictAttr:
    """The attributes of one argument of `@main`.

    Made once for each: passes add weights, and then all arguments are named again."""
    return ir.DictAttr.get({} if weight is None else {WEIGHT: ir.StringAttr.get(weight)})
