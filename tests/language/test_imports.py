"""Generating imports neither JAX nor a compiler: the first token of a second run is near."""

from __future__ import annotations

import subprocess
import sys


def test_generating_needs_no_compiler():
    code = (
        "import sys; from jq.language.model import LanguageModel;"
        "import jq.cli.app, jq.base.system.processor;"
        "print([m for m in ('jax', 'jaxlib', 'iree.compiler') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
