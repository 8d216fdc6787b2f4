"""Number of workgroups of a kernel, so that threads get even shares of them.

A thread of IREE takes `CHUNK` workgroups at a time, or one where there are fewer than `CHUNK` a
thread: 24 workgroups on two threads are 16 and 8, 12 are 6 and 6.
"""

import math

CHUNK = 8
ENOUGH = 8  # workgroups that keep a few threads busy
BLOCKS = 16  # workgroups of a kernel over rows, at most
MIN_ELEMENTS = 1 << 14  # of such a kernel: less is not worth a workgroup of its own


def unevenness(count: int, threads: int = 2) -> float:
    """The largest share of a thread over the mean one, less 1."""
    chunk = 1 if count < CHUNK * threads else CHUNK
    rounds, rest = divmod(count, chunk * threads)
    return (rounds * chunk + min(rest, chunk)) * threads / count - 1


def parts(fixed: int, most: int, cost: float = 0.0) -> int:
    """Into how many parts (1 to `most`) each of `fixed` workgroups is best cut further. Where each
    of them costs this share of the whole work besides, as a mean of one and of two threads.
    """
    wanted = max(CHUNK, 1 + math.ceil(2 * ENOUGH / fixed))
    options = range(1, max(1, min(most, wanted)) + 1)

    def time(n: int) -> float:
        uneven = unevenness(fixed * n)
        return (1 + cost * n) * (1 + uneven / 2) if cost else uneven

    return min(options, key=lambda n: (max(0, ENOUGH - fixed * n), time(n), n))


def row_block(rows: int, columns: int) -> int:
    """Rows of a workgroup of a kernel over the rows of a matrix."""
    blocks = min(BLOCKS, rows, max(1, rows * columns // MIN_ELEMENTS))
    return math.ceil(rows / (blocks + blocks % 2 if 1 < blocks < rows else blocks))
