"""Second moments of the output's gradients by the results of products.

    gram = sum over rows r of  g_r g_r^T / |g_r|          [N, N]

for y = x W of N columns and g the gradient of the program's output, in a random direction, by a row
of y. An error D of W moves the output by about tr(gram D^T H D): directions of y that later ops
take no notice of may take more of it (Tseng et al., "Model-Preserving Adaptive Rounding", 2025)."""

from collections.abc import Sequence

import numpy as np

from jq.ir import Program
from jq.ir.autodiff.sensitivity import Directions
from jq.planning.moments.collect import sensitivity
from jq.planning.moments.gains import Moments, RowsGram, gram_alone, gram_of_rows
from jq.planning.moments.inputs import Wanted

ENOUGH = 512  # gradients
ROUNDS = 4  # gradients of a batch, at most


def output_grams(
    program: Program,
    data: Sequence[Sequence[np.ndarray]],
    wanted: Sequence[Wanted],
    samples: Sequence[int],
) -> dict[str, Moments]:
    """Moments by op name, the gram f64[N, N] alone; none where the program has no gradient.

    The fewer gradients there are, and the less they agree, the more of the gram is replaced by what
    counts all directions alike (Ledoit and Wolf, "A well-conditioned estimator for
    large-dimensional covariance matrices", 2004). `samples` are the numbers of batches."""
    find = sensitivity(program.clone(), wanted, Directions)
    if find is None:
        return {}
    found: dict[str, _Sum] = {w.name: _Sum() for w in wanted}
    rounds = min(ROUNDS, -(-ENOUGH // len(samples)))
    for i in samples:
        for seed in range(i * rounds, (i + 1) * rounds):
            for name, rows in find(data[i], seed, 1).items():
                found[name].add(rows[rows.any(1)])
    return {name: gram_alone(own.shrunk(), np.ones((1, 1))) for name, own in found.items()}


class _Sum:
    """The gram of rows that come gradient by gradient, and the squares of that of each."""

    def __init__(self) -> None:
        self.gram = RowsGram()
        self.squares, self.count = 0.0, 0

    def add(self, rows: np.ndarray) -> None:
        least = rows.T if len(rows) < rows.shape[1] else rows
        self.squares += float(np.square(gram_of_rows(least)).sum())
        self.count += 1
        self.gram.add(rows)

    def shrunk(self) -> np.ndarray:
        """The mean gram, moved towards the multiple of 1 that has its trace."""
        mean = self.gram.total() / self.count
        alike = np.eye(len(mean)) * (np.trace(mean) / len(mean))
        noise = (self.squares / self.count - np.square(mean).sum()) / self.count
        share = np.clip(noise / max(np.square(mean - alike).sum(), 1e-300), 0, 1)
        return np.asarray((1 - share) * mean + share * alike)
