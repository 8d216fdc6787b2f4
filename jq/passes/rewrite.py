"""Passes that replace ops one by one, and what is left of them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from jq.ir import Op, Program, at, ir, is_read, replace
from jq.ir.markers import marker_kind
from jq.passes.base import Pass, PassContext


class Rewrite(Pass, shared=True):
    """A pass that looks at each op once, in program order, and erases what nobody reads then."""

    tidies: ClassVar[bool] = True

    @abstractmethod
    def replacement(self, program: Program, op: Op, cx: PassContext) -> Sequence[ir.Value] | None:
        """The values of the op's results, built in front of it; None where it stays."""

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            with at(op):
                values = self.replacement(program, op, cx)
            if values is not None:
                replace(op, values)
                changed = True
        if changed and self.tidies:
            erase_dead(program)
            program.drop_dead()
        return changed


def erase_dead(program: Program) -> None:
    """Erases markers that nobody reads (an op without users, from the end backwards)."""
    for op in reversed(list(program.walk())):
        if marker_kind(op) and not is_read(*op.results):
            op.operation.erase()
