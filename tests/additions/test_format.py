"""A new number format is one class."""

import jq
from jq.formats.affine import Affine


def test_a_format(dense):
    class Int7(Affine):
        name, bits = "int7-made-up", 7
        description = "7-bit integers"

    compiled = jq.compile(dense, "int8-weight-only", settings={"weights.format": "int7-made-up"})
    assert compiled.audit().weights[0].format == "int7-made-up"
    narrow = jq.compare(dense, compiled).outputs[0].sqnr_db
    wide = jq.compare(dense, jq.compile(dense, "int8-weight-only")).outputs[0].sqnr_db
    assert 3 < wide - narrow < 9  # one bit is 6 dB
