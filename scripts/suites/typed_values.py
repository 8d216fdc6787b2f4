"""The share of values between ops of an emitted `qdq` module that carry a quantized type."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from jq.ir import Program, ir
from jq.ir.quantized.markers import to_quant_types
from suites.untyped import reasons

# Conversions between a type and another are no ops of the model.
EDGES = {
    "stablehlo.uniform_quantize",
    "stablehlo.uniform_dequantize",
    "stablehlo.bitcast_convert",
    "stablehlo.composite",
}


@dataclass
class Share:
    """Attributes:
    typed, all: values that one op of the model makes from its inputs and another one reads.
    others: those without a quantized type, by the reason and the op that makes them.
    """

    typed: int = 0
    all: int = 0
    others: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def why(self) -> Counter[str]:
        """Those without a type, by the reason alone."""
        found = Counter[str]()
        for (reason, _), count in self.others.items():
            found[reason] += count
        return found

    def __str__(self) -> str:
        lines = [f"{self.typed} of {self.all} values"]
        for reason, count in self.why.most_common():
            ops = [(n, op) for (why, op), n in self.others.most_common() if why == reason]
            lines.append(f"  {count} {reason}: " + ", ".join(f"{n} {op}" for n, op in ops))
        return "\n".join(lines)


def emitted(program: Program) -> Program:
    """The module that `--emit qdq` writes, of a program of level `qdq`."""
    made = program.clone()
    to_quant_types(made)
    made.verify()
    return made


def share(program: Program) -> Share:
    """The share in an emitted program."""
    found, untyped = Share(), list[ir.Value]()
    computed = set[ir.Value](program.body.arguments[i] for i in _inputs(program))
    for op in program.walk():
        if not any(v in computed for v in op.operation.operands):
            continue
        for result in op.operation.results:
            computed.add(result)
            readers = [use.owner.operation.name for use in result.uses]
            if op.operation.name in EDGES or not set(readers) - {"func.return"}:
                continue
            found.all += 1
            if "!quant." in str(result.type):
                found.typed += 1
            else:
                untyped.append(result)
    for reason, value in zip(reasons(program, untyped), untyped, strict=True):
        found.others[reason, value.owner.operation.name.removeprefix("stablehlo.")] += 1
    return found


def _inputs(program: Program) -> range:
    return range(len(program.inputs))
