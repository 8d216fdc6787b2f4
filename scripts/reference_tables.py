#!/usr/bin/env python
"""A table of docs/reference/settings.md, or that of defects in docs/internals/iree.md:

scripts/reference_tables.py settings
scripts/reference_tables.py defects
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jq.passes.base import known_passes
from jq.passes.iree_mends.mend import defects as all_defects
from jq.reporting import reference


def defects() -> list[dict[str, Any]]:
    """Known defects of IREE and others, with what works around them and the test of each."""
    return [
        {
            "name": f"`{d.by}`" if d.by in known_passes() else d.by,
            "description": d.what,
            "seen": d.seen,
            "report": d.report or "none found",
            "trap": ", ".join(f"`tests/{t}`" for t in d.traps) or f"none: {d.untrapped}",
        }
        for d in all_defects()
    ]


KINDS = {**reference.KINDS, "defects": defects}


def markdown(kind: str) -> str:
    """The rows as a table of a Markdown page."""
    found = KINDS[kind]()
    lines = [f"| {' | '.join(found[0])} |", "|---" * len(found[0]) + "|"]
    lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in found]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return text.replace("|", "\\|") or "(empty)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    print(markdown(parser.parse_args().kind), end="")
