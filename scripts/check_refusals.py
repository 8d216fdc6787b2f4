#!/usr/bin/env python3
"""Holds `jaxq check` against what planning then does, for every model and target of the tests.

    scripts/check_refusals.py [PATTERN]

Without data on one side, with calibrated ranges on the other; prints what differs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.device.against_planning import TARGETS, compared, models


def main() -> int:
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    cases = refused = differ = 0
    for name, model in models().items():
        if not re.search(pattern, name):
            continue
        for target in TARGETS:
            found, then = compared(model, target)
            cases, refused = cases + 1, refused + len(then)
            if found != then:
                differ += 1
                print(f"{name} on {target}: check says {found}, planning {then}")
    print(f"{cases} cases, {refused} refusals, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
