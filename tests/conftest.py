"""Set before anything imports jax: tests run on the CPU, the same on every machine."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ["JAX_PLATFORMS"] = "cpu"

# A first example compiles, which no deadline allows for; `print_blob` makes a failure elsewhere
# reproducible here.
settings.register_profile("jq", deadline=None, print_blob=True)
settings.load_profile("jq")
