"""The installed packages fit together: we and Flax ask for what is here."""

from __future__ import annotations

from importlib.metadata import requires, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def asked(package: str) -> list[Requirement]:
    """Requirements of a package here, without its extras."""
    found = map(Requirement, requires(package) or [])
    return [each for each in found if not each.marker or each.marker.evaluate({"extra": ""})]


@pytest.mark.parametrize("package", ["jaxq", "flax"])
def test_all_that_is_needed_is_here_in_the_right_version(package: str) -> None:
    left, seen = [package], set[str]()
    while left:
        for each in asked(left.pop()):
            assert version(each.name) in each.specifier, f"{each} is asked for"
            if (name := canonicalize_name(each.name)) not in seen:
                seen.add(name)
                left.append(name)
    assert "jaxlib" in seen


def test_the_newest_jax_that_flax_asks_for_is_allowed() -> None:
    """Otherwise whoever installs one of the two breaks the other."""
    (ours,) = (each.specifier for each in asked("jaxq") if each.name == "jax")
    (theirs,) = (each.specifier for each in asked("flax") if each.name == "jax")
    assert version("jax") in ours & theirs
