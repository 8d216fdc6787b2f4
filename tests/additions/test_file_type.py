"""A new file type is one function that reads it."""

import json

import numpy as np
import pytest

import jq
from jq.base.errors import InternalError
from jq.frontends.tracing.source import reader


def test_a_file_type(tmp_path):
    @reader(".madeup")
    def read(path):
        weight = np.array(json.loads(path.read_text()), np.float32)
        return jq.Model(lambda p, x: x @ p["w"], {"w": weight}, (np.ones((2, 4), np.float32),))

    path = tmp_path / "model.madeup"
    path.write_text(json.dumps(np.eye(4).tolist()))
    compiled = jq.compile(str(path), "float")
    np.testing.assert_array_equal(compiled(np.ones((2, 4), np.float32)), np.ones((2, 4)))
    with pytest.raises(InternalError, match="two readers of .madeup"):
        reader(".madeup")(read)
