"""Results of `check`, `estimate` and `export`: documents that print as a table and a line."""

from abc import abstractmethod
from typing import Any, ClassVar

from rich.table import Table

from jq.base.tables import Shown, plain_table, size


class _Document(Shown, dict[str, Any]):
    """A dictionary with the keys of the command's JSON; `rows` names the list that is its table."""

    rows: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def summary(self) -> str:
        """The whole in one line."""

    def table(self) -> Table:
        """One row an op or a layer."""
        table = plain_table(title=self.rows)
        for name in self.columns:
            numbers = any(isinstance(row[name], int | float) for row in self[self.rows])
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in self[self.rows]:
            table.add_row(*(f"{row[name]}" for name in self.columns))
        return table

    def parts(self) -> list[Table | str]:
        return [*([self.table()] if self[self.rows] else []), self.summary()]


class Check(_Document):
    """The document of `jaxq check`."""

    rows, columns = "refused", ("name", "op", "shape", "reason", "help")

    def summary(self) -> str:
        what = f"{self['target']} with {self['pipeline']}"
        return f"{what}: {len(self['refused']) or 'none'} of {self['ops']} ops refused"


class Estimate(_Document):
    """The document of `jaxq estimate`."""

    rows, columns = "layers", ("name", "op", "operations", "bytes", "cycles", "bound_by")

    def summary(self) -> str:
        peak, least = size(self["peak_sram_bytes"]), size(self["lower_bound_bytes"])
        return (
            f"{self['target']} with {self['pipeline']}: {self['total_cycles']} cycles,"
            f" {self['total_ms']:.4g} ms, {100 * self['utilization']:.3g} % of the products' peak;"
            f" {peak} on the chip, at least {least}"
        )


class Export(_Document):
    """The document of `jaxq export`; its table is of both ends."""

    rows, columns = "inputs", ("name", "dtype", "shape", "scale", "zero_point")

    def summary(self) -> str:
        count = sum(self["operators"].values())
        written = f"{self['path']}: {self['form']}, {count} operators"
        if self["outputs"] is None:
            return f"{written}; not verified (--verify)"
        causes = [f"\n  may differ by one: {n}: {why}" for n, why in self["near_ties"].items()]
        said = f"{written}; {self['same']} of {self['outputs']} outputs have the same bits"
        return said + "".join(causes if self["same"] < self["outputs"] else ())
