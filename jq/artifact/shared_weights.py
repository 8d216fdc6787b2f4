"""Weights that several programs of an artifact read: what has the same bytes is stored once."""

from collections.abc import Callable, Mapping

import numpy as np

KeyOf = Callable[[str, np.ndarray], str]


class SharedWeights:
    """Attributes:
    arrays: key -> array, of all programs.
    """

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self._keys: dict[str, list[str]] = {}  # of one weight in all programs
        self.arrays: dict[str, np.ndarray] = {}

    def key_of(self, target: str) -> KeyOf:
        """Keys of the weights of a program: those of the programs before it where the bytes are the
        same, else with the target's name after them.
        """

        def key_of(name: str, array: np.ndarray) -> str:
            key = self._key_of(name, array)
            keys = self._keys.setdefault(key, [key])
            for each in keys:
                known = self.arrays.get(each)
                if known is None or _same(known, array):
                    return each
            keys.append(f"{key}@{target}")
            return keys[-1]

        return key_of

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The weights of one more program, by their keys."""
        self.arrays.update(arrays)


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    return bytes_of(x).data == bytes_of(y).data


def bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
