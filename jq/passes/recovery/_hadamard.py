"""Hadamard matrices: entries of 1 and -1, orthogonal columns.

Orders: 1, 2, q + 1 for primes q = 3 mod 4 and 2 (q + 1) for primes q = 1 mod 4 (Paley, "On
Orthogonal Matrices", 1933), and twice an order (Sylvester). A width of no such order is cut into
equal blocks of the largest order that divides it."""

from functools import cache, reduce

import numpy as np

RADIX = 32  # the largest factor of a power of two that is one step of a transform


@cache
def hadamard(n: int) -> np.ndarray | None:
    """i8[n, n] with H H^T = n I, or None where none of the constructions gives one."""
    if n in (1, 2):
        return np.array([[1, 1], [1, -1]], np.int8)[:n, :n]
    if n < 1 or n % 4:
        return None
    if (half := hadamard(n // 2)) is not None:
        return np.kron(np.array([[1, 1], [1, -1]], np.int8), half)
    if (n - 1) % 4 == 3 and _prime(n - 1):
        s = np.zeros((n, n), np.int8)
        s[0, 1:], s[1:, 0], s[1:, 1:] = 1, -1, _jacobsthal(n - 1)
        return s + np.eye(n, dtype=np.int8)
    if (n // 2 - 1) % 4 == 1 and _prime(n // 2 - 1):
        return _paley_two(n // 2 - 1)
    return None


@cache
def balanced(n: int, trials: int = 256) -> np.ndarray:
    """`hadamard` of an order that there is, with signs of rows that make sums of columns alike: as
    it is, one channel of x H has the mean of all, an outlier where that is not 0."""
    matrix = hadamard(n)
    assert matrix is not None
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (trials, n))
    largest = np.abs(signs.astype(int) @ matrix).max(1)
    return signs[int(np.argmin(largest))][:, None] * matrix


@cache
def factors_of(width: int, most: int = 0) -> tuple[int, ...]:
    """Orders whose product is the largest block that divides `width` (0: of any size, else of
    `most` at most), in the order of the axes that a block is seen with; () where that is 1."""
    sizes = range(1, min(most or width, width) + 1)
    block = max(b for b in sizes if width % b == 0 and hadamard(b) is not None)
    odd, twos = block, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    if odd == 1:
        return _radices(twos)
    used = next(k for k in range(2, twos + 1) if hadamard(odd << k) is not None)
    return (odd << used, *_radices(twos - used))


def block_of(width: int, most: int = 0) -> int:
    """The size of the blocks that a width is cut into."""
    return int(np.prod(factors_of(width, most), dtype=int))


def matrix(width: int, most: int = 0) -> np.ndarray:
    """f64[block, block], entries of 1 and -1: the Kronecker product of `factors_of`."""
    return reduce(np.kron, map(balanced, factors_of(width, most)), np.ones((1, 1)))


def _radices(twos: int) -> tuple[int, ...]:
    """2^twos in as few steps as `RADIX` allows, alike in size."""
    if not twos:
        return ()
    count = -(-twos // (RADIX.bit_length() - 1))
    return tuple(2 ** (twos // count + (i < twos % count)) for i in range(count))


def _prime(q: int) -> bool:
    return q > 1 and all(q % d for d in range(2, int(q**0.5) + 1))


def _jacobsthal(q: int) -> np.ndarray:
    """Q[i, j]: whether i - j is a square modulo the prime q: 1, -1, or 0 for i = j."""
    squares = {i * i % q for i in range(1, q)}
    symbol = np.array([0] + [1 if i in squares else -1 for i in range(1, q)], np.int8)
    return symbol[(np.arange(q)[:, None] - np.arange(q)) % q]


def _paley_two(q: int) -> np.ndarray:
    s = np.zeros((q + 1, q + 1), np.int8)
    s[0, 1:], s[1:, 0], s[1:, 1:] = 1, 1, _jacobsthal(q)
    one, two = np.array([[1, 1], [1, -1]], np.int8), np.array([[1, -1], [-1, -1]], np.int8)
    return np.kron(s, one) + np.kron(np.eye(q + 1, dtype=np.int8), two)
