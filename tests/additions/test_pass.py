"""A new pass is one class that says which pass it follows."""

import jq
from jq.passes.base import Pass


def test_a_pass(dense):
    seen = []

    class Witness(Pass):
        """Counts the ops once weights are folded."""

        after = "fold-weights"

        def run(self, program, cx):
            seen.append(len(list(program.walk())))
            return False

    jq.compile(dense)
    assert len(seen) == 1 and seen[0] > 0
