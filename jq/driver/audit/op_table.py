"""The table of ops that an artifact carries: what was decided, and what the integer level holds."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from jq.base.tables import Shown, plain_table
from jq.ir import NAME, Program, dtype_name, dtype_of, string_attr
from jq.ir.decisions import decisions
from jq.ir.ops.lookup import is_product
from jq.passes.order import Level
from jq.planning.decisions import QuantPlan

COLUMNS = ("name", "op", "decision", "weights", "activations", "reason", "kernel", "no_kernel")


class Explanation(Shown, dict[str, Any]):
    """The document of `jaxq explain`, which shows itself as a table."""

    def table(self) -> Table:
        """One row an op, in the columns that have something to say."""
        names = [c for c in COLUMNS if any(row.get(c) for row in self["ops"])]
        table = plain_table(*names)
        for row in self["ops"]:
            table.add_row(*(str(row.get(name) or "") for name in names))
        return table

    def notes(self) -> list[str]:
        """Faults of the explained plan, and what it took."""
        refused = [f"compiling is refused: {self['refused']}"] if "refused" in self else []
        refused += [f"warning: {text}" for text in self.get("doubts", ())]
        if seen := self.get("calibrated"):
            refused.append(
                f"calibrated on {seen['calls']} calls in {seen['seconds']} s, for the ranges of"
                " activations; --no-calibrate (calibrate=False) leaves that out"
            )
        return refused + [f"rule {rule!r} matches nothing" for rule in self["unused_rules"]]


def op_table(plan: QuantPlan, levels: Mapping[Level, Program]) -> list[dict[str, Any]]:
    """One row an op of the plan: the decision, the element types at the `integer` level (or in its
    kernel), and the kernel that computes it, or why there is none. Without levels (the program was
    refused) there are neither types nor kernels."""
    integer = levels.get("integer")
    decided = decisions(levels["target"]) if levels else {}
    types = {
        name: [dtype_name(dtype_of(v)) for v in (*list(op.operands)[:2], op.results[0])]
        for op in (integer.walk() if integer else ())
        if (name := string_attr(op, NAME)) is not None and is_product(op)
    }
    types |= {name: facts["types"] for name, facts in decided.items() if "types" in facts}
    rows = []
    for op in plan.ops:
        row, facts = op.to_dict(), decided.get(op.name, {})
        weight = next((p.weight for p in op.operands.values() if p.weight), None)
        lhs, rhs, acc = types.get(op.name, (None, None, None))
        row |= {"weight": weight, "lhs": lhs, "rhs": rhs, "acc": acc}
        row |= {"kernel": facts.get("kernel"), "no_kernel": facts.get("no_kernel", "")}
        row |= {"merged_from": list(facts.get("merged", ()))}
        rows.append(row)
    return rows
