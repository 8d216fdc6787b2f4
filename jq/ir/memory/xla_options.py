"""Options with which XLA computes on the CPU what a program says.

They go with each compilation; nothing of the process changes, which may be a user's own.

- jaxlib 0.10 fuses sums with what they add up into kernels of YNNPACK that crash at seven axes,
  and have wrong numbers after a product of matrices (jax-ml/jax 39103, 39257 and 40412).
- What is written into a tensor and read from that same tensor is computed while it is written,
  where a reshape stands between (openxla/xla 49176): such programs are compiled without fusions.
- jaxlib 0.11 and newer take a time that doubles with each step of integers that a gather's places
  are made of, where a step reads the one before twice: such programs, too.

`tests/traps/test_xla.py` shows all of them.
"""

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.memory.origins import Origins, Walk
from jq.ir.types import shape_of
from jq.ir.values import maker, walk

NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
DISABLED = "xla_disable_hlo_passes"
WRITES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
INDEXED = {"stablehlo.gather": 1, "stablehlo.dynamic_slice": 1}  # first operand that is a place
MANY = 1 << 10  # ways from what is given to a place
MOST = 200_000  # ops, each as often as its function is called


def xla_options(module: ir.Module, **others: str) -> dict[str, str]:
    """By name, as `compiler_options` of `jax.jit` and `compile` take them; `others` besides."""
    apart = _overwritten(module) or _entangled(module)
    without = ["fusion"] * apart + [others[d] for d in others if d == DISABLED]
    return NO_LIBRARY | others | ({DISABLED: ",".join(without)} if without else {})


def _overwritten(module: ir.Module) -> bool:
    """True if anything is written into a tensor that it may itself be made from."""
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    blocks = {op.name.value: op.entry_block for op in functions if not op.is_external}
    if not any(op.operation.name in WRITES for block in blocks.values() for op in walk(block)):
        return False
    overwritten: list[ir.Operation] = []

    def seen(op: ir.Operation, known: Origins) -> None:
        if op.name in WRITES and _reads_itself(op, known):
            overwritten.append(op)

    try:
        Walk(blocks, _product, seen, MOST).start(blocks["main"])
    except OverflowError:  # calls of calls: nobody knows
        return True
    return bool(overwritten)


def _entangled(module: ir.Module) -> bool:
    """True if many ways lead to the places that a gather or a slice reads."""
    for function in module.body.operations:
        if not isinstance(function, func.FuncOp) or function.is_external:
            continue
        ways: dict[ir.Value, int] = {}
        for op in walk(function.entry_block):
            operands = list(op.operands)
            first = INDEXED.get(op.operation.name)
            if first is not None and any(ways.get(v, 1) > MANY for v in operands[first:]):
                return True
            number = min(sum(ways.get(v, 1) for v in operands), 2 * MANY)
            ways.update(dict.fromkeys(op.results, max(number, 1)))
    return False


def _reads_itself(op: ir.Operation, known: Origins) -> bool:
    tensors, updates = _operands(op)
    read = 0
    for value in updates:
        read |= known[value]
    return any(known[_first(value)] & read for value in tensors)


def _operands(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """The tensors that are written into, and those that are written."""
    values = list(op.operands)
    if op.name == "stablehlo.scatter":
        count = len(values) // 2  # tensors, one tensor of places, updates
        return values[:count], values[count + 1 :]
    return values[:1], values[1:2]


def _first(value: ir.Value) -> ir.Value:
    """The tensor that was there before all that was written into it: it has its memory still."""
    while (op := maker(value, *WRITES)) is not None:
        value = op.operands[ir.OpResult(value).result_number]
    return value


def _product(op: ir.Operation) -> bool:
    """True if an op is a product of matrices, which no fusion takes in. A sum of one is none."""
    if op.name != "stablehlo.dot_general":
        return False
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    shape = shape_of(op.operands[0])
    return prod(shape[axis] for axis in numbers.lhs_contracting_dimensions) > 1


__all__ = ["DISABLED", "NO_LIBRARY", "xla_options"]
