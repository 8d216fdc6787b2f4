"""Set before anything imports jax: tests run on the CPU, with the same XLA on every machine."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
