"""The installed packages fit together: we and Flax ask for what is here."""

from __future__ import annotations

import itertools
import subprocess
import sys
from importlib.metadata import packages_distributions, requires, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def asked(package: str) -> list[Requirement]:
    """Requirements of a package here, without its extras."""
    found = map(Requirement, requires(package) or [])
    return [each for each in found if not each.marker or each.marker.evaluate({"extra": ""})]


def all_asked(package: str) -> dict[str, list[Requirement]]:
    """Requirements of a package and of what they require in turn, by name."""
    left, found = [package], dict[str, list[Requirement]]()
    while left:
        for each in asked(left.pop()):
            if (name := canonicalize_name(each.name)) not in found:
                left.append(name)
            found.setdefault(name, []).append(each)
    return found


@pytest.mark.parametrize("package", ["jaxq", "flax"])
def test_all_that_is_needed_is_here_in_the_right_version(package: str) -> None:
    found = all_asked(package)
    for each in itertools.chain(*found.values()):
        assert version(each.name) in each.specifier, f"{each} is asked for"
    assert "jaxlib" in found


def test_the_newest_jax_that_flax_asks_for_is_allowed() -> None:
    """Otherwise whoever installs one of the two breaks the other."""
    (ours,) = (each.specifier for each in asked("jaxq") if each.name == "jax")
    (theirs,) = (each.specifier for each in asked("flax") if each.name == "jax")
    assert version("jax") in ours & theirs


ONLY_NEEDED = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from jq.cli.app import main
sys.exit(main(["quickstart"]))
"""


def test_the_package_runs_with_what_it_asks_for_alone() -> None:
    """Packages that only extras and tests ask for cannot be imported."""
    needed = {"jaxq", *all_asked("jaxq")}
    absent = {
        module
        for module, owners in packages_distributions().items()
        if needed.isdisjoint(map(canonicalize_name, owners))
    }
    assert {"onnx", "sklearn"} <= absent
    code = f"absent = {absent!r}\n{ONLY_NEEDED}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0 and "It works here" in result.stdout, result.stderr
