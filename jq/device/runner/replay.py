# mypy: disable-error-code="import-not-found, no-untyped-def, no-untyped-call"
"""Replays golden vectors of `jaxq vectors` with NumPy alone: `python replay.py [DIR]`."""

import json
import sys
from pathlib import Path

import numpy as np
from replay_ops import OPS  # the file beside this one


def replay(op, inputs, parameters):
    """The result of an op of the index, which is a list of StableHLO steps."""
    known = dict(zip(op["arguments"], [*inputs, *parameters], strict=True))
    with np.errstate(all="ignore"):
        for s in op["steps"]:
            value = np.asarray(OPS[s["op"]](s, *(known[name] for name in s["in"])))
            known[s["out"]] = value.astype(s["type"])
    return known[op["result"]]


folder, wrong = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent, 0
for op in json.loads((folder / "index.json").read_text(encoding="utf-8"))["ops"]:
    parameters = [np.load(folder / p["file"]) for p in op["parameters"]]
    for case in op["cases"]:
        got = replay(op, [np.load(folder / f) for f in case["inputs"]], parameters)
        same = np.array_equal(got, np.load(folder / case["output"]))
        wrong += not same
        print(f"{'same' if same else 'DIFFERENT'}  {op['name']}  {case['kind']}")
sys.exit(bool(wrong))
