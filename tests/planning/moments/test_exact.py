"""Moments and the codes solved with them have the same bits whatever state a process is in."""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from jq.base.system.threads import one_thread
from jq.formats import Encoding
from jq.passes.recovery._solve import solve
from jq.planning.calibration.histogram import NUMPY_STATS
from jq.planning.moments import gains

RNG = np.random.default_rng(11)
ROWS = RNG.standard_normal((3000, 96)).astype(np.float32) * np.geomspace(1e-9, 1e9, 96)
ROWS = ROWS.astype(np.float32)


def moved(x: np.ndarray, by: int) -> np.ndarray:
    """The same values, so many bytes after a boundary of a page."""
    room = mmap.mmap(-1, x.nbytes + 8192)
    found = np.frombuffer(room, x.dtype, x.size, by).reshape(x.shape)
    found[...] = x
    return found


@contextmanager
def flushing() -> Iterator[None]:
    """Denormals are zero in this thread, as programs built with -ffast-math leave it."""
    # sub rsp, 8; stmxcsr [rsp]; xor dword [rsp], 0x8040; ldmxcsr [rsp]; add rsp, 8; ret
    code = bytes.fromhex("4883ec08 0fae1c24 813424 40800000 0fae1424 4883c408 c3")
    room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    room.write(code)
    toggle = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(room)))
    toggle()
    try:
        assert np.float32(1e-40) * np.float32(1) == 0
        yield
    finally:
        toggle()
    assert np.float32(1e-40) * np.float32(1) > 0


STATES: dict[str, Callable[[], object]] = {
    "threads of BLAS: 1": lambda: threadpool_limits(1),
    "threads of BLAS: 2": lambda: threadpool_limits(2),
    "threads of BLAS: 5": lambda: threadpool_limits(5),
    "flushing": flushing if platform.machine() == "x86_64" else nullcontext,
}


def test_sums_have_no_order() -> None:
    """Any order, any cut into blocks and the exact rational sums of the rounded terms."""
    whole = gains.gram_of_rows(ROWS)
    for _ in range(5):
        np.testing.assert_array_equal(gains.gram_of_rows(ROWS[RNG.permutation(len(ROWS))]), whole)
    by_ops = gains.gram(NUMPY_STATS, ROWS[None])[0]
    np.testing.assert_array_equal(by_ops, whole)
    np.testing.assert_array_equal(whole, whole.T)
    sums = gains.total(NUMPY_STATS, ROWS, [0])
    np.testing.assert_array_equal(gains.total(NUMPY_STATS, ROWS[::-1], [0]), sums)


def test_how_far_from_the_sums_themselves() -> None:
    """Each term is half a unit from its own at most, in either factor."""
    whole, sums = gains.gram_of_rows(ROWS), gains.total(NUMPY_STATS, ROWS, [0])
    most = np.abs(ROWS).max(0).astype(np.float64)
    half = 2 * most * 2.0 ** -((53 - 12) // 2) / 2
    for i, j in [(0, 0), (0, 95), (40, 41), (95, 95)]:
        pairs = zip(ROWS[:, i].tolist(), ROWS[:, j].tolist(), strict=True)
        true = float(sum(Fraction(a) * Fraction(b) for a, b in pairs))
        bound = len(ROWS) * (most[i] * half[j] + most[j] * half[i] + half[i] * half[j])
        assert abs(whole[i, j] - true) <= bound
        total = float(sum(map(Fraction, ROWS[:, i].tolist())))
        assert abs(sums[i] - total) <= len(ROWS) * most[i] * 2.0 ** -(53 - 12)


def test_channels_of_zeros() -> None:
    np.testing.assert_array_equal(gains.gram_of_rows(np.zeros((5, 3), np.float32)), 0)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("by", [0, 4, 20, 64])
def test_the_same_codes(state: str, by: int) -> None:
    """The codes that GPTQ stores of a matrix, by the rows that it is multiplied by."""
    mixing = np.random.default_rng(1).standard_normal((72, 72))
    x = (ROWS[:, 20:92] / np.abs(ROWS[:, 20:92]).max(0) @ mixing).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal((72, 40)).astype(np.float32)
    enc = Encoding("int4", weight.shape, (24, 1), "symmetric", "float32")

    def solved(place: int) -> tuple[np.ndarray, ...]:
        gram = gains.gram_of_rows(moved(x, place))
        with one_thread() as threads:
            given = moved(weight, place), moved(gram, place and 8)
            found = solve(*given, enc, threads=threads)
        return gram, found.codes, found.scale, found.zero

    with STATES["threads of BLAS: 2"]():
        right = solved(0)
    with STATES[state]():
        for a, b in zip(solved(by), right, strict=True):
            np.testing.assert_array_equal(a, b)


def test_columns_are_solved_by_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from jq.passes.recovery import _descent, _solve

    for module in (_solve, _descent):
        monkeypatch.setattr(module, "COLUMNS", 8)
    weight = RNG.standard_normal((40, 30)).astype(np.float32)
    gram = gains.gram_of_rows(ROWS[:, 40:80] / np.abs(ROWS[:, 40:80]).max(0))
    enc = Encoding("int4", weight.shape, (0, 1), "symmetric", "float32")
    one, four = (_solve.solve(weight, gram, enc, threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one.real(), four.real())
    own = [
        _solve.solve(
            weight[:, s : s + 8], gram, enc.with_shape((40, len(weight[0, s : s + 8])), enc.block)
        )
        for s in range(0, 30, 8)
    ]
    np.testing.assert_array_equal(_solve.joined(own).real(), one.real())


def test_a_limit_is_held_until_the_last_caller_is_done() -> None:
    def threads() -> set[int]:
        return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}

    before, entered, leave = threads(), threading.Event(), threading.Event()

    def other() -> None:
        with one_thread() as had:
            assert {had} == before
            entered.set()
            leave.wait()

    with one_thread():
        first = threading.Thread(target=other)
        first.start()
        entered.wait()
        assert threads() == {1}
    assert threads() == {1}
    leave.set()
    first.join()
    assert threads() == before


def test_a_limit_of_another_thread_is_in_force_here() -> None:
    """threadpoolctl lets the thread that came first decide, and ignores the others."""
    held, leave = threading.Event(), threading.Event()

    def holds() -> None:
        with threadpool_limits(3, "blas"):
            held.set()
            leave.wait()

    other = threading.Thread(target=holds)
    other.start()
    held.wait()
    with one_thread():
        inside = {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
    leave.set()
    other.join()
    assert inside == {1}


def test_no_rows_are_no_moments() -> None:
    assert gains.gram_of_rows(np.zeros((0, 3), np.float32)).tolist() == np.zeros((3, 3)).tolist()
