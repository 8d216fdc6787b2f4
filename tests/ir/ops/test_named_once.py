"""Passes ask a contraction's rule about it: the names of ops are in `jq/ir/ops`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r'"(stablehlo\.)?(dot_general|convolution)"')

# Each of these says what every op means, or is about the words that users write.
ALLOWED = {
    "jq/ir/autodiff/jax_ops.py": "every StableHLO op in JAX",
    "jq/device/replay_ops.py": "the ops of golden vectors in NumPy, for users without us",
    "jq/target/device_table.py": "the key `depthwise` of a target file falls back to `convolution`",
    "jq/ir/oracle/interpreter.py": "a defect of the interpreter in convolutions alone",
    "jq/ir/oracle/xla.py": "what XLA refuses of products alone",
    "jq/ir/memory.py": "which ops XLA computes in memory of their own",
    "jq/language/decoder/mixers/recurrent.py": "the name of a kind of layer",
    "jq/language/decoder/architectures/recurrent.py": "the name of a kind of layer",
    "jq/target/settings.py": "the default of the setting `op_types`",
}


def test_contractions_are_named_where_they_are_defined() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "jq").rglob("*.py")
        if NAMED.search(path.read_text())
    }
    elsewhere = {f for f in found if not f.startswith(("jq/ir/ops/", "jq/models/"))}
    assert elsewhere == set(ALLOWED)
