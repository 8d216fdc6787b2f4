from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from jq.base.errors import CompilerError, UserError
from jq.iree import compiler
from jq.iree.compiler import HOST_FLAGS, compile_module, first_error

ADD = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
# A constant index out of range: IREE 3.13 dies in const-eval. Should this test fail, the
# clamps of the gather workaround may no longer be needed.
CRASH = b"""func.func @main() -> tensor<1x1xf32> {
  %t = stablehlo.constant dense<1.0> : tensor<4x1xf32>
  %t2 = stablehlo.iota dim = 0 : tensor<4x1xf32>
  %i = stablehlo.constant dense<1000000000> : tensor<1x1xi32>
  %0 = "stablehlo.gather"(%t2, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<4x1xf32>, tensor<1x1xi32>) -> tensor<1x1xf32>
  return %0 : tensor<1x1xf32>
}"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, for this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_result_and_program(temp: Path) -> None:
    built = compile_module(ADD)
    assert built.vmfb[:2] == b"PK"
    assert built.program is not None
    assert "linalg.generic" in built.program
    assert "loc(" in built.program
    assert built.seconds > 0
    assert list(temp.iterdir()) == []


@pytest.mark.parametrize("function", ["tanh", "cbrt"])
def test_functions_that_the_compiler_lacks(function: str, temp: Path) -> None:
    text = ADD.replace(b"add %a, %a", f"{function} %a".encode()).replace(b"f32", b"f64")
    with pytest.raises(UserError, match=f"no function {function}; .*float32"):
        compile_module(text)
    assert list(temp.iterdir()) == []


def test_tools_in_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a clone under `My Documents`."""
    folder = tmp_path / "a place"
    folder.mkdir()
    installed = Path(compiler.find_tool("iree-lld")).resolve().parent
    for tool in ("iree-compile", "iree-lld"):
        shutil.copy(installed / tool, folder)  # a link would lead the compiler out of the folder
    (folder / "libIREECompiler.so").symlink_to(installed / "libIREECompiler.so")
    monkeypatch.setattr(compiler, "find_tool", lambda name: str(folder / name))
    assert compile_module(ADD).vmfb


def test_stack_limit() -> None:
    """LayerNorm and reductions of real models do not fit IREE's 32 KiB."""
    program = compile_module(ADD).program
    assert program is not None
    assert "max_stack_allocation_size = 262144" in program


def test_without_dump(temp: Path) -> None:
    assert compile_module(ADD, keep_dump=False).program is None


def test_error_is_one_line_with_the_ir_kept(temp: Path) -> None:
    source = ADD.replace(b"%a, %a", b"%a, %b")
    with pytest.raises(CompilerError, match="undeclared SSA value") as caught:
        compile_module(source)
    assert "\n" not in str(caught.value)
    path = caught.value.ir_path
    assert path is not None
    assert str(path) in str(caught.value)
    assert path.read_bytes() == source
    assert path.parent.name.startswith("jaxq-crash-")
    assert "iree-compile" in (path.parent / "command.txt").read_text()


@pytest.mark.parametrize("own", ["", "glibc.malloc.check=0"])
def test_large_pages_but_where_the_user_said_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    print_it = [sys.executable, "-c", "import os; print(os.environ['GLIBC_TUNABLES'])"]
    code, log = compiler._run(print_it, tmp_path, 60)
    assert (code, log.strip()) == (0, own or "glibc.malloc.hugetlb=1")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each run of the compiler: True if it checks its program after every pass."""
    runs: list[bool] = []
    run = compiler._run

    def counted(command: list[str], work: Path, timeout: float) -> tuple[int | None, str]:
        runs.append(compiler.UNCHECKED not in command)
        return run(command, work, timeout)

    monkeypatch.setattr(compiler, "_run", counted)
    return runs


def test_checked_between_passes_only_where_it_fails(checks: list[bool]) -> None:
    """Checks take time; they say best what is wrong."""
    compile_module(ADD)
    assert checks == [False]
    with pytest.raises(UserError, match="no-such-flag"):
        compile_module(ADD, flags=["--no-such-flag"])
    assert checks == [False, False, True]


def test_always_checked_where_nothing_is_written_down(checks: list[bool]) -> None:
    compile_module(ADD, keep_dump=False)
    assert checks == [True]


# IREE makes of it an op of its own that it then refuses; unchecked, code that writes elsewhere.
BATCHED = b"""func.func @main(%x: tensor<10x6xf32>, %i: tensor<10x1xi32>, %u: tensor<10x2xf32>)
    -> tensor<10x6xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0],
    scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<10x6xf32>, tensor<10x1xi32>, tensor<10x2xf32>) -> tensor<10x6xf32>
  return %y : tensor<10x6xf32>
}"""


@pytest.mark.parametrize("keep_dump", [True, False])
def test_what_the_compiler_itself_refuses_is_refused(keep_dump: bool, temp: Path) -> None:
    with pytest.raises(CompilerError, match="indices to be equal to batch rank"):
        compile_module(BATCHED, keep_dump=keep_dump)


def test_unknown_flag(temp: Path) -> None:
    with pytest.raises(UserError, match="no-such-flag"):
        compile_module(ADD, flags=[*HOST_FLAGS, "--no-such-flag"])


def test_crash_is_an_error(temp: Path) -> None:
    """The compiler can die; the process that called it must not."""
    with pytest.raises(CompilerError, match="crashed") as caught:
        compile_module(CRASH)
    assert caught.value.ir_path is not None
    assert caught.value.exit_code == 1


def test_timeout(temp: Path) -> None:
    with pytest.raises(CompilerError, match=r"within 0\.01 s"):
        compile_module(ADD, timeout=0.01)


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import signal, subprocess, sys, tempfile
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else a background job ignores it
        tempfile.tempdir = sys.argv[1]
        from jq.iree import compiler
        compiler.find_tool = lambda name: "/bin/sleep"
        compiler.BASE_FLAGS = ()
        real = subprocess.Popen
        def popen(command, **kwargs):
            child = real(["/bin/sleep", "60"], **kwargs)
            print(child.pid, flush=True)
            return child
        subprocess.Popen = popen
        compiler.compile_module(b"")
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.1)
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a.mlir:3:1: error: bad thing\nnote: x", "bad thing"),
        ('loc("a"): error: first\nloc("b"): error: second', "first"),
        ("LLVM ERROR: Cannot select: intrinsic", "LLVM ERROR: Cannot select: intrinsic"),
        ("PLEASE submit a bug report\nStack dump:\n#0 0x1", ""),
        ("something odd", "something odd"),
        ("", ""),
    ],
)
def test_first_error(log: str, line: str) -> None:
    assert first_error(log) == line


@pytest.mark.parametrize(
    "name", ["a b", "a;touch PWNED", "$(touch PWNED)", "`touch PWNED`", "é'\""]
)
def test_any_name_of_a_temporary_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    assert compiler.compile_module(ADD).vmfb
    assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == [folder]
