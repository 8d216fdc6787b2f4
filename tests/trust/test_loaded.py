"""A loaded artifact is what was checked, whatever happens to its files; forks and pickles."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.driver.compiled import CompiledModel
from jq.driver.loading import load
from tests.trust.artifacts import copy_of

X = (np.arange(16) % 5 - 2).astype(np.int8).reshape(2, 8)


def called(compiled: CompiledModel) -> np.ndarray:
    (result,) = compiled.call_flat([X])
    return result


@pytest.mark.parametrize("name", ["weights.irpa", "model.vmfb"])
def test_changed_between_loading_and_the_first_call(name: str, tmp_path: Path) -> None:
    compiled = load(copy_of(tmp_path))
    path = tmp_path / "artifact" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="changed since the artifact was loaded"):
        called(compiled)
    with pytest.raises(UserError, match="changed since the artifact was loaded"):
        compiled.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["weights.irpa", "model.vmfb"])
def test_changed_or_cut_off_under_a_loaded_model(name: str, tmp_path: Path) -> None:
    code = f"""if True:
        import numpy as np
        from jq.driver.loading import (load)
        called = lambda m: m.call_flat([np.zeros((2, 8), np.int8)])[0]
        compiled = load({str(copy_of(tmp_path))!r})
        want = called(compiled)
        path = {str(tmp_path / "artifact" / name)!r}
        with open(path, "r+b") as file:
            file.write(bytes(100_000))
        assert (called(compiled) == want).all()
        open(path, "wb").close()
        assert (called(compiled) == want).all()
        print("same")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_pickled_before_and_after_a_call(tmp_path: Path) -> None:
    compiled = load(copy_of(tmp_path))
    before = pickle.loads(pickle.dumps(compiled))
    want = called(compiled)
    after = pickle.loads(pickle.dumps(compiled))
    np.testing.assert_array_equal(called(before), want)
    np.testing.assert_array_equal(called(after), want)


FORKED = """if True:
    import os, sys, warnings
    warnings.simplefilter("ignore")  # JAX's, about forks
    from jq.driver.loading import (load)
    from jq.base.errors import UserError
    import numpy as np
    called = lambda m: m.call_flat([np.zeros((2, 8), np.int8)])[0]
    path, first, then = sys.argv[1:]
    compiled = load(path, threads=int(first))
    want = called(compiled)
    if (child := os.fork()) == 0:
        try:
            called(compiled)
        except UserError as error:
            assert "before a fork" in str(error)
        try:
            same = (called(load(path, threads=int(then))) == want).all()
            print("same" if same else "other", flush=True)
        except UserError as error:
            print(error, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (called(compiled) == want).all()
"""


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [(1, 1, "same"), (1, 2, "same"), (2, 1, "same"), (2, 2, "was forked from one that runs")],
)
def test_a_fork_after_a_call(first: int, then: int, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(copy_of(tmp_path)), str(first), str(then)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


ENDS = """if True:
    import os, sys, warnings
    warnings.simplefilter("ignore")
    from jq.driver.loading import (load)
    from jq.base.errors import UserError
    import numpy as np
    called = lambda m: m.call_flat([np.zeros((2, 8), np.int8)])[0]
    compiled = load(sys.argv[1], threads=int(sys.argv[2]))
    called(compiled)
    if sys.argv[3] == "jax":
        import jax
        jax.numpy.ones(3).block_until_ready()
    if (child := os.fork()) == 0:
        try:
            called(compiled)
        except UserError:
            sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("beside", ["alone", "jax"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_whose_call_was_refused_ends(threads: int, beside: str, tmp_path: Path) -> None:
    """By itself, with its own exit code; it waited for threads that only its parent has: those of
    IREE's devices, and of XLA's client where the parent compiled or ran JAX as well."""
    command = [sys.executable, "-c", ENDS, str(copy_of(tmp_path)), str(threads), beside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "7"), done.stderr
    assert "leaked" not in done.stderr


COMPILED = """if True:
    import os, sys, warnings
    warnings.simplefilter("ignore")
    import numpy as np
    import jq
    model = jq.Model(lambda w, x: x @ w, np.ones((8, 8), np.float32), (np.ones((2, 8)),))
    done = jq.trace(model) if sys.argv[1] == "trace" else jq.compile(model, measure=False)
    if (child := os.fork()) == 0:
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("what", ["trace", "compile"])
def test_a_child_of_who_compiled_ends(what: str) -> None:
    """Both compilers' bindings hold pools of threads, which only the parent has."""
    command = [sys.executable, "-c", COMPILED, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "7"), done.stderr
    assert "leaked" not in done.stderr


COMPILES = """if True:
    import os, sys, warnings
    warnings.simplefilter("ignore")
    import numpy as np
    import jax, jq
    x = np.eye(2, 8, dtype=np.float32)
    model = jq.Model(lambda w, x: x @ w, np.ones((8, 8), np.float32), (x,), calibration=[(x,)])
    if sys.argv[1] == "jq":
        jq.compile(model, measure=False).audit()
    else:
        jax.jit(lambda x: x @ x.T)(x)
    if (child := os.fork()) == 0:
        try:
            made = jq.compile(model, measure=False, cache=False, settings={"recovery": False})
            print(made.audit().verified, flush=True)
            jq.calibrate(model)
        except jq.UserError as error:
            print(error, flush=True)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("by", ["jq", "jax"])
def test_a_child_of_who_compiled_compiles(by: str) -> None:
    """It waited for ever for threads that only the parent has, or was aborted. XLA itself does, so
    that gradients are refused."""
    command = [sys.executable, "-c", COMPILES, by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    compiled, refused = done.stdout.splitlines()
    assert compiled == "True" and "was forked from one in which JAX ran" in refused


def test_a_folder_takes_the_place_of_another_at_once(tmp_path: Path) -> None:
    """No moment without an artifact: whoever is killed leaves the old one or the new one."""
    compiled, seen = load(copy_of(tmp_path)), []
    place = tmp_path / "out"
    compiled.save(place)
    rename = os.rename

    def watched(*names: object) -> None:
        rename(*names)  # type: ignore[arg-type]
        seen.append(place.exists())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", watched)
        compiled.save(place, force=True)
    assert all(seen)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["artifact", "out"]
    np.testing.assert_array_equal(called(load(place)), called(compiled))
