"""A file in Arm's reference model of TOSA, as a process of its own: the model prints to standard
output, and where it fails it ends its process. Beside `tosa`, with which JAX would be imported."""

import sys
from pathlib import Path

import numpy as np


def main(folder: str) -> None:
    """Runs `model.tosa` of a folder on each `inputs*.npz`, into `outputs*.npz`."""
    import tosa_reference_model

    data = (Path(folder) / "model.tosa").read_bytes()
    for path in Path(folder).glob("inputs*.npz"):
        outputs, status = tosa_reference_model.run(data, arrays_of(path))
        if outputs is None or "TOSA_VALID" not in str(status):  # it gives some all the same
            sys.exit(str(status))
        np.savez(path.with_name(path.name.replace("in", "out", 1)), *outputs)


def arrays_of(path: Path) -> list[np.ndarray]:
    """The arrays of a file, in order."""
    with np.load(path) as arrays:
        return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
