"""Vector instructions of dispatches, and constants that they write out in float."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from iree.compiler import ir

from jq.ir import Op
from jq.iree.dump.products import ADD, MUL, WIDEN, MultiplyAdd, contraction_of, element_type, is_op
from jq.iree.dump.stored import bit_width, compiler_context, constant_of, location_names

# Multiply-accumulate inside ready-made kernels: dot-product instructions, plain vector code.
# What an instruction multiplies and adds into -> parts of the names of LLVM's intrinsics.
_BY_TYPES = {
    ("i8", "i8", "i32"): "vpdpbusd tdpbssd tdpbusd neon.sdot neon.udot neon.usdot neon.smmla"
    # Sums in 16 bits that cannot saturate (`Isa.for_bits`), widened right after.
    " neon.usmmla pmadd.ub pmaddubs",
    ("i16", "i16", "i32"): "vpdpwssd pmaddw.d pmadd.wd",
    ("bf16", "bf16", "f32"): "tdpbf16ps dpbf16ps",
}
INSTRUCTIONS = {
    name: MultiplyAdd(*types) for types, names in _BY_TYPES.items() for name in names.split()
}
# Ops on registers whose result holds the bits of operand 0.
_KEEP = WIDEN | {
    "arith.xori",  # with a constant: codes seen with the other sign
    "vector.bitcast",
    "vector.broadcast",
    "vector.extract",
    "vector.shape_cast",
    "vector.shuffle",
    "vector.transpose",
}
_VECTOR_LOADS = {"vector.load", "memref.load"}
_STORES = {"vector.store", "memref.store"}


def kernel_products(body: Iterable[Any]) -> tuple[MultiplyAdd, ...]:
    """Every kind of product in the body of a kernel, each once, in order of appearance."""
    found: dict[MultiplyAdd, None] = {}
    for op in body:
        for product in _products(op):
            if "index" not in (product.lhs, product.rhs):
                found[product] = None
    return tuple(found)


def _products(op: Op) -> Iterable[MultiplyAdd]:
    if op.name == "llvm.call_intrinsic":
        name = op.attributes["intrin"].value
        known = next((p for key, p in INSTRUCTIONS.items() if key in name), None)
        if known:
            lhs, rhs = list(op.operands)[-2:]
            if known.rhs == "i16" and _is_one(rhs):
                return  # it adds neighbours
            yield MultiplyAdd(_origin(lhs, known.lhs), _origin(rhs, known.rhs), known.acc)
    elif op.name in ("vector.contract", "vector.outerproduct", "math.fma", "vector.fma"):
        lhs, rhs, *acc = (element_type(v) for v in op.operands)
        yield MultiplyAdd(lhs, rhs, acc[0] if acc else lhs)
    elif op.name in ADD:
        for term in op.operands:
            if is_op(term, MUL):
                a, b = term.owner.operands
                types = _origin(a, element_type(a)), _origin(b, element_type(b))
                yield MultiplyAdd(*types, element_type(op.results[0]))
    elif linalg := contraction_of(op):
        yield linalg[0]


def _is_one(value: Any) -> bool:
    """True if a value is a constant vector of ones."""
    if not is_op(value, {"arith.constant"}):
        return False
    number = value.owner.attributes["value"]
    return bool(number.is_splat and number.get_splat_value().value == 1)


def _origin(value: Any, read_as: str, within: frozenset[Any] = frozenset()) -> str:
    """The narrowest integer type that the values of a register had on their way into it. `read_as`
    is what the instruction takes its operand for; tiles have no element type at all. `within` are
    the buffers through which the search has come."""
    narrowest = read_as
    while True:
        narrowest = _narrower(narrowest, element_type(value))
        if is_op(value, _VECTOR_LOADS):
            stored = _stored_type(value.owner.operands[0], within)
            return _narrower(narrowest, stored) if stored else narrowest
        if not is_op(value, _KEEP):
            return narrowest
        value = value.owner.operands[0]


def _narrower(one: str, other: str) -> str:
    integers = other.startswith("i") and other != "index"
    return other if integers and bit_width(other) < bit_width(one) else one


def _stored_type(buffer: Any, within: frozenset[Any]) -> str:
    """The widest type among what is stored in a kernel's own buffer; empty where that is unknown.
    Kernels widen the codes of a tile once, and read them from such a buffer many times."""
    if not is_op(buffer, {"memref.alloca"}) or buffer.owner in within:
        return ""
    widest = ""
    for use in buffer.uses:
        op = use.owner.operation
        if op.name in _VECTOR_LOADS and use.operand_number == 0:
            continue
        if op.name not in _STORES or use.operand_number != 1:
            return ""
        kind = _origin(op.operands[0], element_type(op.operands[0]), within | {buffer.owner})
        widest = kind if not widest or bit_width(kind) > bit_width(widest) else widest
    return widest


# Constants that a program writes to memory in float at every call, from IREE's dispatches.
#
# A dispatch that reads constants alone and gives floats is a decode that was not fused with what
# uses it. The phase `flow` shows dispatches and what they read. What is found is kept as comments
# at the end of the dump, one line of JSON each, so that an artifact carries it.
PHASE = "flow"
_COMMENT = "// expanded: "
_SMALLEST = 1024  # elements
_CONSTANTS = ("flow.tensor.constant", "arith.constant")


@dataclass(frozen=True)
class Expanded:
    """A float tensor in memory and the names of the constants that it is computed from."""

    names: Sequence[str]
    shape: Sequence[int]
    dtype: str


def find_expanded(text: str) -> list[Expanded]:
    """The expanded weights in the dump of `PHASE`; none when it cannot be read."""
    with compiler_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError:
            return []
        symbols = ir.SymbolTable(module.operation)
        functions = [op for op in module.body.operations if op.operation.name == "util.func"]
        return [e for f in functions for e in _in_function(f.operation, symbols)]


def _in_function(function: Any, symbols: ir.SymbolTable) -> Iterator[Expanded]:
    known: dict[Any, tuple[str, ...]] = {}  # values that depend on constants alone
    for op in (o.operation for block in function.regions[0] for o in block):
        if op.name == "util.global.load":
            stored = symbols[ir.FlatSymbolRefAttr(op.attributes["global"]).value].operation
            constant = constant_of(stored, location_names(stored.location))
            names = constant.names if constant else ()
        elif op.name in _CONSTANTS:
            names = location_names(op.location)
        elif op.name.startswith("flow.") and all(v in known for v in op.operands):
            names = tuple(dict.fromkeys(n for v in op.operands for n in known[v]))
        else:
            continue
        known |= dict.fromkeys(op.results, names)
        if op.name == "flow.dispatch":
            large = [v.type for v in op.results if _is_large_float(v.type)]
            yield from (Expanded(names, tuple(t.shape), str(t.element_type)) for t in large)


def _is_large_float(kind: Any) -> bool:
    static = isinstance(kind, ir.RankedTensorType) and kind.has_static_shape
    return static and isinstance(kind.element_type, ir.FloatType) and prod(kind.shape) >= _SMALLEST


def as_comments(found: list[Expanded]) -> str:
    return "".join(f"{_COMMENT}{json.dumps(asdict(e))}\n" for e in found)


def from_comments(text: str) -> tuple[Expanded, ...]:
    """Reads what `as_comments` wrote at the end of a dump."""
    lines = re.findall(f"^{_COMMENT}(.*)", text, re.MULTILINE)
    return tuple(Expanded(**json.loads(line)) for line in lines)
