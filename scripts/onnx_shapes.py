#!/usr/bin/env python3
"""Gives operators of ONNX operands of drawn shapes, and looks for calls that are not refused.

    scripts/onnx_shapes.py [EACH [SEED [PATTERN]]]      shapes an operand, of samples by name

Prints what is neither refused by name nor computed as ONNX Runtime does, and counts.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.frontends.onnx.wrong_shapes import drawn, verdict


def main() -> int:
    each, seed, pattern = [*sys.argv[1:], *("1", "0", "")[len(sys.argv) - 1 :]]
    counts = Counter[str]()
    for name, sample, key, array in drawn(int(seed), int(each)):
        if re.search(pattern, name):
            found = verdict(sample, key, array)
            counts[found.partition(":")[0]] += 1
            if found not in ("same", "refused", "lenient"):
                print(f"{name}: {key} {array.shape}: {found}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return int(bool(counts.keys() - {"same", "refused", "lenient"}))


if __name__ == "__main__":
    sys.exit(main())
