"""A file in Arm's reference model of TOSA, as a process of its own: the model prints to standard
output, and where it fails it ends its process."""

import sys
from pathlib import Path

import numpy as np


def main(folder: str) -> None:
    """Runs `model.tosa` of a folder on `inputs.npz`, into `outputs.npz`."""
    import tosa_reference_model

    where = Path(folder)
    with np.load(where / "inputs.npz") as inputs:
        given = [inputs[f"arr_{i}"] for i in range(len(inputs.files))]
    outputs, status = tosa_reference_model.run((where / "model.tosa").read_bytes(), given)
    if outputs is None:
        sys.exit(str(status))
    np.savez(where / "outputs.npz", *outputs)
