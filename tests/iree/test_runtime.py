from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jq.artifact.parameters import write_parameters
from jq.base.errors import JqError, UserError
from jq.iree.compiler import compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable, ParameterFiles
from tests.iree.helpers import make_program, run

RNG = np.random.default_rng(1)
DENSE = """func.func public @main(%x: tensor<4x64xf32>, %w: tensor<64x32xf32>) -> tensor<4x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  return %0 : tensor<4x32xf32>
}"""
W = RNG.integers(-9, 9, (64, 32)).astype(np.float32)
X = RNG.integers(-9, 9, (4, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def vmfb() -> bytes:
    """`x @ w` with `w` as a parameter."""
    given = handover(make_program(DENSE, {"w": W}), inline_limit=0)
    return compile_module(given.bytecode).vmfb


def test_many_types() -> None:
    text = """func.func public @main(%a: tensor<3xbf16>, %b: tensor<i1>, %c: tensor<2xui8>,
        %d: tensor<0x4xf32>, %e: tensor<2xf64>, %f: tensor<3xi64>, %g: tensor<2x2xf16>)
        -> (tensor<3xbf16>, tensor<i1>, tensor<2xui8>, tensor<0x4xf32>, tensor<2xf64>,
            tensor<3xi64>, tensor<2x2xf16>) {
      %0 = stablehlo.add %a, %a : tensor<3xbf16>
      %1 = stablehlo.not %b : tensor<i1>
      %2 = stablehlo.add %e, %e : tensor<2xf64>
      %3 = stablehlo.add %f, %f : tensor<3xi64>
      return %0, %1, %c, %d, %2, %3, %g : tensor<3xbf16>, tensor<i1>, tensor<2xui8>,
        tensor<0x4xf32>, tensor<2xf64>, tensor<3xi64>, tensor<2x2xf16>
    }"""
    a = np.arange(3).astype(ml_dtypes.bfloat16)
    b = np.bool_(True)
    c = np.array([1, 255], np.uint8)
    d = np.zeros((0, 4), np.float32)
    e = np.array([1 / 3, 1e300])
    f = np.array([1 << 40, -1, 0])
    g = np.array([[1, 2], [3, 4]], np.float16, order="F")
    outputs = run(text, a, b, c, d, e, f, g)
    for y, want in zip(outputs, (a + a, ~b, c, d, e + e, f + f, g), strict=True):
        assert y.dtype == want.dtype
        np.testing.assert_array_equal(y, want)


def test_results_are_copies(vmfb: bytes) -> None:
    call = Executable.load(vmfb, {"w": W})
    (first,) = call(X)
    kept = first.copy()
    for _ in range(5):
        call(-X)
    np.testing.assert_array_equal(first, kept)
    first[:] = 0  # writable, and not the runtime's memory
    np.testing.assert_array_equal(call(X)[0], kept)


def test_memory_of_a_result_lives_as_long_as_its_array(vmfb: bytes) -> None:
    call = Executable.load(vmfb, {"w": W})
    x, other = call.place(X), call.place(-X)
    (view,) = call.call_placed(x)
    first, want = call.fetch(view, copy=False), call.fetch(view)
    del view
    for _ in range(20):
        call.call_placed(other)
    np.testing.assert_array_equal(first, want)


def test_callers_arrays_are_never_written() -> None:
    """IREE updates an argument's device buffer in place."""
    text = """func.func public @main(%x: tensor<64x8xf32>, %u: tensor<1x8xf32>, %i: tensor<i32>)
        -> tensor<64x8xf32> {
      %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i
        : (tensor<64x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<64x8xf32>
      return %0 : tensor<64x8xf32>
    }"""
    x, u = np.zeros((64, 8), np.float32), np.ones((1, 8), np.float32)
    (y,) = run(text, x, u, np.int32(0))
    assert y.sum() == 8
    assert not x.any()


def test_files(vmfb: bytes, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"o\xff\xfet")  # a name is bytes, and not always text
    folder.mkdir()
    path, weights = folder / "model.vmfb", folder / "w.irpa"
    path.write_bytes(vmfb)
    np.testing.assert_array_equal(Executable.load(path, {"w": W})(X)[0], X @ W)
    write_parameters(weights, {"w": W})
    for parameters in (weights, ParameterFiles([weights])):
        np.testing.assert_array_equal(Executable.load(path, parameters)(X)[0], X @ W)


def test_threads_share_a_module(vmfb: bytes) -> None:
    call = Executable.load(vmfb, {"w": W})

    def check(seed: int) -> bool:
        x = np.random.default_rng(seed).integers(-9, 9, (4, 64)).astype(np.float32)
        return all(np.array_equal(call(x)[0], x @ W) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(4)))


def test_worker_threads(vmfb: bytes, tmp_path: Path) -> None:
    """In a process of its own: the number of workers is fixed for a process.

    A function may need twice the stack that IREE gives a worker by default: attention over 4096
    keys wrote after it.
    """
    (tmp_path / "m.vmfb").write_bytes(vmfb)
    script = textwrap.dedent("""
        import sys, time, numpy as np
        from pathlib import Path
        from jq.iree.devices import WORKER_STACK
        from jq.iree.runtime import Executable
        from jq.base.errors import UserError
        module, w = Path(sys.argv[1]), np.ones((64, 32), np.float32)
        x = np.ones((4, 64), np.float32)
        assert (Executable.load(module, {"w": w}, threads=3)(x)[0] == 64).all()
        def workers():
            tasks = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
            return sum(name.startswith("iree-worker") for name in tasks)
        deadline = time.monotonic() + 10  # a thread gets its name a moment after its start
        while workers() < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        print(workers())
        def stack(task):
            # Bytes of the mapping that the stack pointer of a waiting thread is in.
            while (words := (task / "syscall").read_text().split())[0] == "running":
                time.sleep(0.01)
            maps = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines()]
            spans = [[int(end, 16) for end in span.split("-")] for span in maps]
            (size,) = [high - low for low, high in spans if low <= int(words[-2], 16) < high]
            return size
        tasks = [p.parent for p in Path("/proc/self/task").glob("*/comm")
                 if p.read_text().startswith("iree-worker")]
        print(min(map(stack, tasks)) >= WORKER_STACK)
        Executable.load(module, {"w": w}, threads=3)
        Executable.load(module, {"w": w}, threads=1)
        try:
            Executable.load(module, {"w": w}, threads=2)
        except UserError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.vmfb")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "3",
        "True",
        "this process already runs modules on 3 threads, not 2; "
        "use one number of threads above 1 in a process",
    ]


def test_errors_are_one_line(vmfb: bytes) -> None:
    call = Executable.load(vmfb, {"w": W})
    with pytest.raises(JqError, match="input0 shape dimension 0 mismatch"):
        call(X[:2])
    with pytest.raises(JqError, match="element type mismatch"):
        call(X.astype(np.float64))
    with pytest.raises(JqError, match="expected 1 arguments but passed 2"):
        call(X, X)
    with pytest.raises(UserError, match="datetime64"):
        call(X.astype("M8[s]"))
    for broken in (b"", b"garbage" * 100, vmfb[: len(vmfb) // 2]):
        with pytest.raises(JqError, match="cannot load") as caught:
            Executable.load(broken, {"w": W})
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"no such file: /no/model\.vmfb"):
        Executable.load(Path("/no/model.vmfb"))
    with pytest.raises(UserError, match=r"no such file: /no/weights\.irpa"):
        Executable.load(vmfb, Path("/no/weights.irpa"))
    with pytest.raises(JqError, match="no parameter found"):
        Executable.load(vmfb, {"v": W})
    with pytest.raises(JqError, match="out of bounds"):
        Executable.load(vmfb, {"w": W[:3]})
    with pytest.raises(UserError, match="local-sync"):
        Executable.load(vmfb, {"w": W}, driver="abacus")
    with pytest.raises(UserError, match="no function 'other'"):
        Executable.load(vmfb, {"w": W}, function="other")
    with pytest.raises(UserError, match="between 1 and 1024"):
        Executable.load(vmfb, {"w": W}, threads=0)
