"""Turns steps on rows, one after the other, into one kernel.

    %y = call @jq_normalize(%x, %gamma)
    %s = add %y, %residual
    %z = call @jq_normalize(%s, %gamma2)       ->    %s, %codes, %scale = call @jq_row_chain(
    %codes, %scale = call @jq_quantize_rows(%z)          %x, %gamma, %residual, %gamma2)

Such a kernel takes less time than it takes to begin one. The chain begins with a normalization;
codes and digits of its rows, and rows that something else reads, are results. What the steps read
besides must be there in front of the first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jq import kernels
from jq.ir import NAME, OPS, Op, Program, at, ir, maker, shape_of, string_attr, users
from jq.kernels.rowwise import row_chain
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, called, declarations, drop_declarations, isa_of

Operand = tuple[Op, int]  # an op, and which of its operands


class KernelChain(Pass):
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


@dataclass(frozen=True)
class _Made:
    """A step that was found: what it makes, what it reads besides the row (as operands of ops), and
    the op that it takes the place of."""

    step: row_chain.Normalized | row_chain.Added
    value: ir.Value
    operands: tuple[Operand, ...]
    op: Any


@dataclass
class _Chain:
    """Steps that were found, what they read, and what they replace."""

    known: Mapping[str, Any]
    first: kernels.Normalize
    start: Any
    operands: list[Operand] = field(default_factory=list)
    steps: list[row_chain.RowStep] = field(default_factory=list)
    replaced: list[ir.Value] = field(default_factory=list)  # by the results, in order
    gone: list[Any] = field(default_factory=list)

    def kernel(self, op: Op) -> Any:
        return called(self.known, op)

    def there(self, operand: Operand) -> ir.Value | None:
        """A value, or what it reshapes, that is there before the chain; None where it is not."""
        value = operand[0].operands[operand[1]]
        while (owner := maker(value)) is not None and owner.operation.block == self.start.block:
            if owner.operation.is_before_in_block(self.start):
                return value
            if owner.operation.name != "stablehlo.reshape":
                return None
            value = owner.operands[0]
        return value  # an argument, or outside of the block

    def take(self, made: _Made) -> _Made | None:
        """Takes in what makes a row, and the codes of the row; what makes the next row."""
        readers = list(_readers(made.value))
        coded = [(r, step) for r in readers if (step := self._codes(self.kernel(r)))]
        others = [r.operation for r in readers if r not in [op for op, _ in coded]]
        following = self._following(made, others)
        keep = len(others) > (following is not None)
        self.operands += made.operands
        self.gone.append(made.op)
        self.steps.append(replace(made.step, keep=keep))
        self.replaced += [made.value] * keep
        for reader, step in coded:
            self.steps.append(step)
            self.replaced += list(reader.results)
            self.gone.append(reader.operation)
        return following

    def _codes(self, kernel: Any) -> row_chain.Coded | row_chain.Digits | None:
        """The step that gives what a kernel gives of the rows; None where it is none of these."""
        m, k = self.first.m, self.first.k
        if isinstance(kernel, kernels.SplitRows) and (kernel.m, kernel.k) == (m, k):
            return row_chain.Digits(kernel.block, kernel.digits)
        if not isinstance(kernel, kernels.QuantizeRows) or kernel.factors or kernel.sequences:
            return None
        whole = kernel.m * kernel.k == m * k and k % kernel.k == 0
        return row_chain.Coded(kernel.k, kernel.scheme) if whole and kernel.scheme.dynamic else None

    def _following(self, before: _Made, readers: Sequence[Op]) -> _Made | None:
        """The step to the next row from these readers' one, where all that it reads is there."""
        for made in (self._of(before, op) for op in readers):
            if made and all(self.there(operand) is not None for operand in made.operands):
                return made
        return None

    def _of(self, before: _Made, op: Op) -> _Made | None:
        """The step that an op is."""
        kernel = self.kernel(op)
        if op.operation.name == "stablehlo.add":
            others = [(op, i) for i in (0, 1) if self.there((op, i)) is not None]
            added = _Made(row_chain.Added(), op.results[0], tuple(others), op.operation)
            return added if len(others) == 1 else None
        if _plain(kernel) and kernel.m == self.first.m and isinstance(before.step, row_chain.Added):
            return _normalized(kernel, op)
        return None


def _normalized(kernel: kernels.Normalize, op: Op) -> _Made:
    step = row_chain.Normalized(kernel.epsilon, kernel.center, kernel.gamma, kernel.beta)
    others = tuple((op, i) for i in range(1, len(op.operands)))
    return _Made(step, op.results[0], others, op.operation)


def _chain_of(known: Mapping[str, Any], op: Op) -> _Chain | None:
    """The chain that a call begins; None if it is no lone normalization, or nothing follows."""
    first = called(known, op)
    if not isinstance(first, kernels.Normalize) or not _plain(first):
        return None
    chain = _Chain(known, first, op.operation, [(op, 0)])
    made: _Made | None = _normalized(first, op)
    while made is not None:
        made = chain.take(made)
    return chain if len(chain.steps) > 1 else None


def _plain(kernel: Any) -> bool:
    """True if a kernel normalizes all rows, and does nothing else."""
    return (
        isinstance(kernel, kernels.Normalize) and kernel.scheme is None and kernel.sequences is None
    )


def _readers(value: ir.Value) -> Iterator[Op]:
    """Readers of a value, perhaps reshaped."""
    for reader in users(value):
        if reader.operation.name == "stablehlo.reshape":
            yield from _readers(reader.results[0])
        else:
            yield reader


def _lower(program: Program, chain: _Chain) -> None:
    """Puts the kernel where the chain begins."""
    first, start = chain.first, chain.start
    kernel = row_chain.RowChain(isa=first.isa, m=first.m, k=first.k, steps=tuple(chain.steps))
    found = [chain.there(operand) for operand in chain.operands]
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
                between.erase()
