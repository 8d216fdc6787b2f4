"""A module is found the same way by import and by attribute, and `import jq` breaks none of it.

`jq.plan` is a function, so no module may have that name: importing it would replace the function.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pkgutil import walk_packages

import pytest

import jq

MODULES = sorted(m.name for m in walk_packages(jq.__path__, "jq.") if "__main__" not in m.name)


def test_every_module_is_the_attribute_of_its_package() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        found = jq
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        assert found is module, name


def test_public_names_survive_the_import_of_every_module() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for name in ("calibrate", "compare", "plan", "quantize_weights", "search", "trace"):
        assert callable(getattr(jq, name))
        assert f"jq.{name}" not in MODULES
    assert isinstance(jq.models.digits_cnn, jq.Model)


@pytest.mark.parametrize(
    "statement",
    [
        "import jq.planning.planner as p; assert p.plan",
        "import jq.frontends.tracing.source as s, jq; assert s.load_model and callable(jq.trace)",
        "from jq.mixed_precision.budget import parse_budget; import jq; assert callable(jq.search)",
        "import jq; assert jq.page.report and jq.formats.get_format and jq.gguf.load_gguf",
        "import os; os.environ['EAGER_IMPORT'] = '1'; import jq; assert jq.gguf",
        "import jq; assert {'compile', 'formats', 'gguf', 'page', '__version__'} <= {*dir(jq)}",
        "import jq.models.zoo.digits_cnn as m, jq; assert m.build and jq.models.digits_cnn.fn",
        # Processes that only run what was compiled start without JAX, which takes seconds.
        "import jq.device.forms.tosa_reference, jq.reporting.benchmark.worker, jq.iree.runtime;"
        "import sys; assert 'jax' not in sys.modules",
    ],
)
def test_in_a_fresh_interpreter(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True, timeout=120)


@pytest.mark.parametrize("package", ["jq", "jaxq"])
def test_the_command_is_a_module_too(package: str) -> None:
    command = [sys.executable, "-m", package, "--version"]
    run = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert run.stdout.startswith("jaxq ") and not run.stderr
