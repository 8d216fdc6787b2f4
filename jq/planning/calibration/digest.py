"""One name for a program and everything in it."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from jq.ir.program import Program


def program_digest(program: Program) -> str:
    """SHA-256 of the program's text and of its weights: the same wherever it was traced from, and
    another for any other function, shape or weight."""
    digest = hashlib.sha256(program.text(whole=True).encode())
    for name, array in program.weights.items():
        data = np.asarray(array)
        digest.update(json.dumps([name, data.dtype.name, data.shape]).encode())
        digest.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
