"""Set before anything imports jax: tests run on the CPU, the same on every machine."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.child import Child

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAXQ_XLA"] = "here"  # else every process of a test starts another one
gc.set_threshold(50_000)  # as the command line: programs are many objects, and few cycles

# The same examples on every run, unless `--hypothesis-profile=random` asks for new ones. A first
# example compiles, which no deadline allows for; `print_blob` makes a failure elsewhere
# reproducible here.
settings.register_profile("fixed", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--max-isa", help="pass for a processor with no more than this, such as avx2")


def pytest_configure(config: pytest.Config) -> None:
    if limit := config.getoption("--max-isa"):
        os.environ["JAXQ_MAX_ISA"] = limit  # child processes are told in this way too


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from jq.kernels import ISAS, available
    from tests.kernels import emulated

    here = [isa.name for isa in available()]
    others = [name for name in ISAS if name not in here]
    terminalreporter.write_line(f"instruction sets that run here: {', '.join(here)}")
    terminalreporter.write_line(f"compiled only: {', '.join(others)}")
    if emulated.COMMAND:
        ran, calls = emulated.Emulated.kernels, emulated.Emulated.runs
        isas = ", ".join(emulated.ISAS)
        terminalreporter.write_line(f"emulated: {ran} kernels in {calls} calls ({isas})")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty cache: the user's, with what earlier runs left, decides nothing here; and nothing
    that tests leave, such as reports of crashes, outlives them."""
    tmp_path_factory.getbasetemp()  # pytest keeps the folders of three runs: not in ours
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "TMPDIR", "MPLCONFIGDIR", "KERAS_HOME"):
            patch.setenv(name, folder)
        patch.setattr(tempfile, "tempdir", folder)
        _keep_executables(folder)
        yield


def _keep_executables(folder: str) -> None:
    """XLA compiles equal programs once: tests make many, each by a function of its own."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_compilation_cache_dir", f"{folder}/xla")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # what was compiled at import found none


@pytest.fixture(scope="session")
def child() -> Iterator[Child]:
    """A process that may crash."""
    made = Child()
    yield made
    made.stop()


@pytest.fixture
def quick_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA compiles without optimizing, in half the time: for tests of what is computed with it,
    where its own bits are not the question."""
    import jax

    from jq.ir.oracle import xla

    quick = {"xla_backend_optimization_level": 0}
    compile = jax.stages.Lowered.compile

    def quickly(self: jax.stages.Lowered, options: dict | None = None) -> jax.stages.Compiled:
        return compile(self, {**(options or {}), **quick})

    monkeypatch.setattr(jax.stages.Lowered, "compile", quickly)
    monkeypatch.setattr(xla, "_OPTIONS", {**xla._OPTIONS, **quick})
