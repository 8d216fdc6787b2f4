from __future__ import annotations

from collections.abc import Iterator

import pytest

from jq.passes.base import Recovery
from jq.target.settings import Settings


@pytest.fixture(scope="module", autouse=True)
def _plain_rounding() -> Iterator[None]:
    """Recovery passes run where a test names them: they are a third of the time of a compile, and
    most tests here ask which ops a pass makes of a program and what these compute."""

    def chosen(self: Recovery, settings: Settings) -> bool:
        return isinstance(settings.recovery, tuple) and self.name in settings.recovery

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recovery, "chosen", chosen)
        yield
