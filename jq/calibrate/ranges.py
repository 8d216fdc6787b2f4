"""What was observed of each activation: mergeable, and saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jq.errors import UserError

SCHEMA = 1


@dataclass(frozen=True)
class Range:
    """Smallest and largest value seen; `low <= high`, both finite."""

    low: float
    high: float

    def merge(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Ranges:
    """Ranges by site: `"<op name>:<operand number>"`."""

    sites: Mapping[str, Range] = field(default_factory=dict)
    samples: int = 0
    method: str = "minmax"

    def merge(self, other: Ranges) -> Ranges:
        """As if both had been observed in one run."""
        sites = dict(self.sites)
        for name, r in other.sites.items():
            sites[name] = sites[name].merge(r) if name in sites else r
        return Ranges(sites, self.samples + other.samples, self.method)

    def save(self, path: Path) -> None:
        data = {
            "schema": SCHEMA,
            "method": self.method,
            "samples": self.samples,
            "sites": {k: [r.low, r.high] for k, r in sorted(self.sites.items())},
        }
        temporary = path.with_name(path.name + ".part")
        try:
            temporary.write_text(json.dumps(data, indent=1) + "\n")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    @staticmethod
    def load(path: Path) -> Ranges:
        try:
            data = json.loads(path.read_text())
            if data["schema"] != SCHEMA:
                raise UserError(f"{path}: ranges of schema {data['schema']}, this reads {SCHEMA}")
            sites = {str(k): Range(float(a), float(b)) for k, (a, b) in data["sites"].items()}
            return Ranges(sites, int(data["samples"]), str(data["method"]))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not a file of ranges: {error}") from error


def site(op_name: str, operand: int) -> str:
    return f"{op_name}:{operand}"
