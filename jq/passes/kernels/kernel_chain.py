"""What is done to rows one after the other becomes one kernel.

    %y = call @jq_normalize(%x, %gamma)
    %s = add %y, %residual
    %z = call @jq_normalize(%s, %gamma2)       ->    %s, %codes, %scale = call @jq_row_chain(
    %codes, %scale = call @jq_quantize_rows(%z)          %x, %gamma, %residual, %gamma2)

Such a kernel takes less time than it takes to begin one. The chain begins with a normalization;
codes and digits of its rows, and rows that something else reads, are results. What the steps read
besides must be there in front of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jq.ir import Op, Program, at, ir, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.values import maker, users
from jq.kernels import (
    Added,
    Coded,
    Digits,
    Normalize,
    Normalized,
    QuantizeRows,
    RowChain,
    SplitRows,
)
from jq.kernels.rowwise.row_chain import RowStep
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import (
    OPS,
    call_kernel,
    called,
    declarations,
    drop_declarations,
    isa_of,
)


@dataclass(frozen=True)
class KernelChain(Pass):
    name = "kernel-chain"

    def run(self, program: Program, cx: PassContext) -> bool:
        known, chains, taken = declarations(program), list[_Chain](), set[Any]()
        for op in program.walk() if isa_of(cx.target) else []:
            chain = None if op.operation in taken else _chain_of(known, op)
            if chain is not None:
                chains.append(chain)
                taken |= set(chain.gone)
        for chain in chains:  # ops are told apart by what they read: nothing has changed so far
            _lower(program, chain)
        if chains:
            drop_declarations(program)
        return bool(chains)


@dataclass
class _Chain:
    """Steps that were found, what they read (as operands of ops), and what they replace."""

    known: Mapping[str, Any]
    first: Normalize
    start: Any
    operands: list[tuple[Op, int]] = field(default_factory=list)
    steps: list[RowStep] = field(default_factory=list)
    replaced: list[ir.Value] = field(default_factory=list)  # by the results, in order
    gone: list[Any] = field(default_factory=list)

    def kernel(self, op: Op) -> Any:
        return called(self.known, op)

    def there(self, value: ir.Value) -> ir.Value | None:
        """A value, or what it is a reshape of, that is there in front of the chain; None where it
        is not."""
        while (owner := maker(value)) is not None and owner.operation.block == self.start.block:
            if owner.operation.is_before_in_block(self.start):
                return value
            if owner.operation.name != "stablehlo.reshape":
                return None
            value = owner.operands[0]
        return value  # an argument, or outside of the block

    def take(self, op: Op, others: Sequence[int]) -> tuple[Op, Sequence[int]] | None:
        """Takes in what makes a row, with the operands that it has besides, and the codes of the
        row; what makes the next row, and its operands."""
        readers, following = list(_readers(op.results[0])), None
        coded = [(r, step) for r in readers if (step := self._codes(self.kernel(r)))]
        for reader in readers:
            if following is None and (more := self._follows(op, reader)) is not None:
                following = reader, more
        keep = len(readers) > len(coded) + (following is not None)
        kernel = self.kernel(op)
        self.steps.append(
            Added(keep)
            if kernel is None
            else Normalized(kernel.epsilon, kernel.center, kernel.gamma, kernel.beta, keep)
        )
        self.operands += [(op, i) for i in others]
        self.replaced += [op.results[0]] * keep
        self.gone.append(op.operation)
        for reader, step in coded:
            self.steps.append(step)
            self.replaced += list(reader.results)
            self.gone.append(reader.operation)
        return following

    def _codes(self, kernel: Any) -> Coded | Digits | None:
        """The step that gives what a kernel gives of the rows; None where it is none of these."""
        m, k = self.first.m, self.first.k
        if isinstance(kernel, SplitRows) and (kernel.m, kernel.k) == (m, k):
            return Digits(kernel.block, kernel.digits)
        if not isinstance(kernel, QuantizeRows) or kernel.factors or kernel.sequences:
            return None
        whole = kernel.m * kernel.k == m * k and k % kernel.k == 0
        return Coded(kernel.k, kernel.scheme) if whole and kernel.scheme.dynamic else None

    def _follows(self, op: Op, reader: Op) -> Sequence[int] | None:
        """Which operands a reader has besides the rows to make others; None where it is no step."""
        kernel, operands = self.kernel(reader), list(reader.operands)
        others: Sequence[int] = range(1, len(operands))
        if reader.operation.name == "stablehlo.add":
            others = [i for i, value in enumerate(operands) if self.there(value) is not None]
        elif not _plain(kernel) or kernel.m != self.first.m or self.kernel(op) is not None:
            return None
        there = all(self.there(operands[i]) is not None for i in others)
        return others if there and len(others) == len(operands) - 1 else None


def _chain_of(known: Mapping[str, Any], op: Op) -> _Chain | None:
    """The chain that begins with a call; None where that is no normalization by itself, or nothing
    follows it."""
    first = called(known, op)
    if not isinstance(first, Normalize) or not _plain(first):
        return None
    chain = _Chain(known, first, op.operation, [(op, 0)])
    made: tuple[Op, Sequence[int]] | None = op, range(1, len(op.operands))
    while made is not None:
        made = chain.take(*made)
    return chain if len(chain.steps) > 1 else None


def _plain(kernel: Any) -> bool:
    """Whether a kernel normalizes all rows, and does nothing else."""
    return isinstance(kernel, Normalize) and kernel.scheme is None and kernel.sequences is None


def _readers(value: ir.Value) -> Iterator[Op]:
    """What reads a value, perhaps reshaped."""
    for reader in users(value):
        if reader.operation.name == "stablehlo.reshape":
            yield from _readers(reader.results[0])
        else:
            yield reader


def _lower(program: Program, chain: _Chain) -> None:
    """Puts the kernel where the chain begins."""
    first, start = chain.first, chain.start
    kernel = RowChain(isa=first.isa, m=first.m, k=first.k, steps=tuple(chain.steps))
    found = [chain.there(op.operands[i]) for op, i in chain.operands]
    operands = [value for value in found if value is not None]
    with at(start):
        results = call_kernel(program, kernel, operands, string_attr(start, NAME) or "")
        for old, new in zip(chain.replaced, results, strict=True):
            old.replace_all_uses_with(OPS.reshape(new, shape_of(old)))
    for dead in reversed(chain.gone):
        values = list(dead.operands)
        dead.erase()
        for value in values:
            while (between := maker(value, "stablehlo.reshape")) and not users(value):
                value = between.operands[0]
                between.operation.erase()
