"""A new recovery method is one class: known to the setting `recovery`, skipped without data."""

from dataclasses import replace

import jq
from jq.passes.base import Recovery


def test_a_recovery_method(dense):
    seen = []

    class Mine(Recovery):
        """Looks at the calibration data."""

        name, after = "made-up", "smooth"

        def recover(self, program, cx):
            seen.append(len(cx.data))
            return False

    jq.compile(dense)
    assert not seen  # it runs where it is named
    jq.compile(dense, settings={"recovery": "made-up"})
    assert seen == [1]
    without = jq.compile(replace(dense, calibration=None), settings={"recovery": "made-up"})
    assert seen == [1] and any("made-up was skipped" in n for n in without.manifest.notes)
