"""Artifacts that were written long ago load for ever.

`artifacts/schema-N` was written when the schema had number N, for any x86-64: a product of int8
codes (the weight is `arange(32) % 7 - 3`) times one scale a column, weights in their own file.
Schema 2 has it at two sizes, of 2 and 4 rows. Nothing there is ever written again; a new schema
adds a directory.
"""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from jq.artifact.load import load_artifact
from jq.artifact.manifest import SCHEMA_VERSION
from jq.driver.audit import audit_program
from jq.iree.dump.reader import read_dump
from jq.iree.runtime import Executable

FOLDER = Path(__file__).parent / "artifacts"

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="compiled for x86-64"
)


@pytest.mark.parametrize("number", range(1, SCHEMA_VERSION + 1))
def test_old_artifact(number: int) -> None:
    found = load_artifact(FOLDER / f"schema-{number}")
    x = (np.arange(16) % 5 - 2).astype(np.int8).reshape(2, 8)
    w = (np.arange(32) % 7 - 3).astype(np.int32).reshape(8, 4)
    want = (x.astype(np.int32) @ w) * np.array([[0.5, 0.25, 1, 2]], np.float32)
    (y,) = Executable.load(found.vmfb, found.parameters)(x)
    np.testing.assert_array_equal(y, want)
    audit = audit_program(found.manifest.model_dump(), read_dump(found.programs[0].dump), 1, 1)
    assert audit.verified
    assert [(c.lhs, c.rhs, c.acc) for c in audit.contractions] == [("i8", "i8", "i32")]
