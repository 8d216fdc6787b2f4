"""Results of long passes are taken from an earlier run with the same input, and no other."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import jq
from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.passes.recovery import gptq, smooth
from jq.planning.calibration import run
from jq.planning.moments import collect
from jq.planning.moments.gains import Gains
from tests.passes.recovery.models import mlp
from tests.support.texts import load

pytestmark = pytest.mark.usefixtures("quick_xla")

TEXT = """(%x: tensor<4x3xf32>, %w: tensor<3x2xf32> {jq.weight = "w"}) -> tensor<4x2xf32> {
  %0 = stablehlo.dot %x, %w : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}"""
DATA = [[np.ones((4, 3), np.float32)]]
FOUND = {
    "a": np.arange(6, dtype=np.int8).reshape(2, 3),
    "b": np.array(1.5, ml_dtypes.bfloat16),
    "c": np.array([-3, 7], ml_dtypes.int4),
    "d": np.zeros((0, 4)),
}


CONSTANT = TEXT.replace(
    "  return %0",
    """  %c = stablehlo.constant dense<DATA> : tensor<32xf32>
  return %0""",
)


def never():
    raise AssertionError("it was found before")


def constant(value):
    """A program with a constant that its text elides."""
    return CONSTANT.replace("DATA", str([float(v) for v in (value, *range(31))]))


def program(scale=1.0):
    return load(TEXT, {"w": np.full((3, 2), scale, np.float32)})


def test_arrays_come_back_as_they_were(tmp_path):
    Cache("recovery", DATA, tmp_path).of("pass()", lambda: FOUND)
    found = Cache("recovery", [[a.copy() for a in DATA[0]]], tmp_path).of("pass()", never)
    assert list(found) == list(FOUND)
    for name, array in FOUND.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable


def test_everything_that_it_depends_on_is_in_the_key(tmp_path):
    other = TEXT.replace("stablehlo.dot %x, %w", "stablehlo.dot %x, %w, precision = [HIGH, HIGH]")
    given = [
        (DATA, program(), "a"),
        (DATA, program(), "b"),
        (DATA, program(2.0), "a"),
        (DATA, load(other, dict(program().weights)), "a"),
        *((DATA, load(constant(i)), "a") for i in range(2)),
        ([[2 * DATA[0][0]]], program(), "a"),
        (DATA * 2, program(), "a"),
        (None, program(), "a"),
    ]
    keys = [
        Cache("recovery", data, tmp_path).path([program_digest(found), what]).name
        for data, found, what in given
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b"{}\n" + b])
def test_damaged_entry_is_as_good_as_none(tmp_path, damage):
    results = Cache("recovery", DATA, tmp_path)
    results.of("a", lambda: FOUND)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    again = results.of("a", lambda: {"e": np.ones(1)})
    assert list(again) == ["e"]
    assert list(results.of("a", never)) == ["e"]


def test_second_compile_solves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((64, 16)).astype(np.float32)}
    data = [(rng.standard_normal((8, 64)).astype(np.float32),) for _ in range(2)]
    data[0][0][:, 3] *= 50  # an outlier channel: there is something to smooth
    model = jq.Model(lambda p, x: x @ p["w"], params, data[0], calibration=data)
    first = jq.compile(model, "int8-static")
    for where, name in ((gptq, "solve"), (smooth, "collect"), (run, "calibrate")):
        monkeypatch.setattr(where, name, lambda *_, **__: never())
    second = jq.compile(model, "int8-static")
    np.testing.assert_array_equal(second(*data[1]), first(*data[1]))
    with pytest.raises(jq.JqError, match="it was found before"):
        jq.compile(model, "int8-static", cache=False)


def test_one_gradient_serves_every_pass(monkeypatch):
    """Also for the batches that the first of them, `smooth`, does not look at."""
    made, find = [], collect.sensitivity
    monkeypatch.setattr(collect, "sensitivity", lambda *given: made.append(1) or find(*given))
    model, data = mlp()
    calls = [tuple(x) for x in data * 4]
    assert len(calls) > smooth.SAMPLES["dynamic"]
    model = replace(model, calibration=calls)
    jq.compile(model, "int8-dynamic", settings={"min_elements": 1}, cache=False, measure=False)
    assert len(made) == 1


def test_later_passes_know_the_same_gains(tmp_path):
    """They round by the gains of a pass that ran, and of one taken from an earlier run."""
    model = jq.Model(lambda p, x: x @ p, np.eye(3, dtype=np.float32), DATA[0])
    job = prepare_job(model, Request("float", "llvm-cpu"))
    asked = []

    class Rows:
        axes = {"w": (1,)}

        def __call__(self, inputs, sample, rounds):
            asked.append(sample)
            return {"w": np.full(4, sample, np.float32)}

    def found(*samples, known=()):
        cx = replace(job.prepared, gains=Gains(), results=Cache("recovery", DATA, tmp_path))
        for sample in known:
            cx.gains.of(["w"], sample, DATA[0], Rows)

        def make():
            for sample in samples:
                cx.gains.of(["w"], sample, DATA[0], Rows)
            return FOUND

        assert list(cx.found(program(), "a", make)) == list(FOUND)
        assert cx.gains.gradient is None  # that of a pass that was not run would not be there
        return {name: rows.tolist() for name, rows in cx.gains.known.items()}, cx.gains.size

    first = found(0, 2)
    assert first == ({("w", 0): [0.0] * 4, ("w", 2): [2.0] * 4}, 32) and asked == [0, 2]
    assert found(1) == first and asked == [0, 2]  # an earlier run's
    assert found(1, known=[5])[0].keys() == {("w", 5), ("w", 1)}  # what was known is in the key
