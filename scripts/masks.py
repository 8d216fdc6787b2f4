#!/usr/bin/env python3
"""Attention of four shapes, masks in five spellings, padded and packed batches, in all pipelines.

    scripts/masks.py                     # every pipeline, float32 and bfloat16
    scripts/masks.py int8-dynamic float

See `suites/masked.py` for what is right. The exit code is 1 where something is wrong.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax.numpy as jnp  # noqa: E402 - found just above
from suites import masked  # noqa: E402

PIPELINES = sorted(path.stem for path in (ROOT / "pipelines").glob("*.toml"))


def main(pipelines: list[str]) -> int:
    wrong = 0
    for pipeline in pipelines or PIPELINES:
        for dtype in (jnp.float32, jnp.bfloat16):
            outcome = masked.run(pipeline, dtype)
            wrong += len(outcome.wrong)
            said = outcome.refused or f"{outcome.compared} compared, least {outcome.least:.1f} dB"
            print(f"{pipeline} {dtype.dtype.name}: {said}, {len(outcome.wrong)} wrong", flush=True)
            for line in outcome.wrong:
                print(f"  {line}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
