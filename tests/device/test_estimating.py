"""`jaxq estimate` against sums by hand; buffers never overlap in time and space."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jq
from jq.base.errors import UserError
from jq.cli.app import main
from jq.device.estimating import Buffer, lower_bound, placed
from jq.target.hardware import Array
from jq.target.target import load_target

HARDWARE = """
[hardware]
macs_per_cycle = {{ "int8 x int8" = {macs} }}
clock_mhz = 100
elements_per_cycle = {elements}
sram_bytes = {sram}
sram_bytes_per_cycle = {sram_rate}
dram_bytes_per_cycle = {dram}
op_cycles = 10
"""
X = np.ones((4, 64), np.float32)
MODEL = jq.Model(lambda p, x: x @ p, np.ones((64, 32), np.float32), (X,))


def found(
    tmp_path: Path,
    device: str = "npu-int8",
    model=MODEL,
    more: str = "",
    pipeline: str = "int8-static",
    **figures: float,
) -> dict:
    figures = {
        "macs": 1e6,
        "elements": 1e6,
        "sram": 1 << 20,
        "sram_rate": 1e6,
        "dram": 1e6,
    } | figures
    path = tmp_path / "own.toml"
    path.write_text(Path(f"targets/{device}.toml").read_text() + HARDWARE.format(**figures) + more)
    return jq.estimate(model, str(path), pipeline=pipeline)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("int9 x int8", "unknown type 'int9'"),
        ("int8", "no pair of types"),
        ("int8xint8", "no pair of types"),
        ("Int8 x int8", "unknown type 'Int8'"),
    ],
)
def test_a_rate_of_no_types_is_refused(tmp_path, pair: str, said: str) -> None:
    path = tmp_path / "own.toml"
    figures = dict.fromkeys(("macs", "elements", "sram", "sram_rate", "dram"), 1)
    table = HARDWARE.format(**figures).replace("int8 x int8", pair)
    path.write_text(Path("targets/npu-int8.toml").read_text() + table)
    with pytest.raises(UserError, match=said) as refused:
        load_target(str(path))
    assert f"hardware.macs_per_cycle.{pair}: " in str(refused.value)
    assert "int2, int3, int4, int8, int16" in str(refused.value)


def test_it_prints_as_a_table(tmp_path) -> None:
    result = found(tmp_path)
    shown = str(result)
    assert repr(result) == shown and "{" not in shown and "dot_general" in shown
    assert "own with int8-static: " in shown.splitlines()[-1]
    assert "dot_general" in result._repr_html_()


# One product of 4x64 and 64x32 codes: 8192 multiply-adds, 256 and 2048 bytes read.
@pytest.mark.parametrize(
    ("figures", "bound", "cycles"),
    [
        ({"macs": 2}, "compute", 10 + 4096),
        ({"dram": 1}, "dram", None),
        ({"sram_rate": 1 / 64}, "sram", None),
        ({"elements": 1 / 64}, "vector", None),
    ],
)
def test_the_slowest_part_bounds_a_layer(tmp_path, figures, bound, cycles) -> None:
    result = found(tmp_path, **figures)
    (layer,) = [row for row in result["layers"] if row["op"] == "dot_general"]
    assert layer["operations"] == 2 * 4 * 64 * 32 and layer["bound_by"] == bound
    assert layer["bytes"] >= 4 * 64 + 64 * 32
    if bound == "dram":  # the codes of the weight, and four bytes a column of its sums or factors
        assert 2048 + 10 <= layer["cycles"] <= 2048 + 10 + 5 * 4 * 32
    assert cycles is None or layer["cycles"] == cycles
    assert result["total_cycles"] == sum(row["cycles"] for row in result["layers"])
    assert result["total_ms"] == pytest.approx(result["total_cycles"] / 1e5)
    assert 0 < result["utilization"] <= 1


@given(*[st.integers(1, 40)] * 3, st.sampled_from([(1, 1, 1, 1), (8, 8, 4, 32), (16, 8, 4, 64)]))
def test_an_array_takes_whole_groups(inputs, taps, outputs, sizes) -> None:
    """Multiply-adds are counted group by group, by both ways to go through a window."""
    by_output, by_channel, by_tap, deep = sizes
    array = Array(outputs=by_output, channels=by_channel, taps=by_tap, deep=deep)
    columns = len(range(0, outputs, by_output)) * by_output
    at_once = len(range(0, inputs, by_channel)) * len(range(0, taps, by_tap))
    one_tap = taps * len(range(0, inputs, deep)) * deep
    macs = columns * min(one_tap, at_once * by_channel * by_tap)
    assert array.padded(inputs, taps, outputs) == pytest.approx(macs / (inputs * taps * outputs))


def test_products_fill_an_array_and_results_leave_it(tmp_path) -> None:
    result = found(tmp_path, more="array = { outputs = 24, channels = 48 }\n", macs=2)
    (layer,) = [row for row in result["layers"] if row["op"] == "dot_general"]
    assert layer["cycles"] == 10 + 4 * 96 * 48 / 2  # 64 terms, 32 columns
    result = found(tmp_path, more="outputs_per_cycle = 0.5\n")
    (layer,) = [row for row in result["layers"] if row["op"] == "dot_general"]
    assert (layer["cycles"], layer["bound_by"]) == (10 + 4 * 32 / 0.5, "vector")
    blocks = "outputs_per_cycle = 9\nblock_pixels = 3\nchannel_cycles = 100\n"
    (layer,) = [r for r in found(tmp_path, more=blocks)["layers"] if r["op"] == "dot_general"]
    assert (layer["cycles"], layer["bound_by"]) == (10 + 2 * 32 * 100, "channels")


def test_elements_have_their_kind_and_channels_are_stored_in_groups(tmp_path) -> None:
    """A sum has the name and the kind that the model gives it, also where it is in integers."""

    def apply(p, x):
        with jax.named_scope("joined"):
            return x @ p + x @ (2 * p)

    model = jq.Model(apply, np.ones((64, 33), np.float32), (X,))
    more = "stored_channels = 16\nelement_cycles = { add = 7 }\n"
    layers = found(tmp_path, model=model, more=more, pipeline="int8-static-integer-only")["layers"]
    (row,) = [row for row in layers if row["op"] == "add"]
    assert "joined" in row["name"] and row["bound_by"] == "vector"
    assert row["cycles"] == 10 + 4 * 48 * 7


def test_a_product_turns_what_it_sums_over(tmp_path) -> None:
    """The first axis is summed over, which has to be the last: 64 x 4 numbers are transposed."""
    x = np.ones((64, 4), np.float32)
    model = jq.Model(
        lambda p, x: jnp.einsum("km,kn->mn", x, p), np.ones((64, 32), np.float32), (x,)
    )
    kept, turned = (
        [r for r in found(tmp_path, model=m, more="element_cycles = { transpose = 3 }\n")["layers"]
         if r["op"] == "dot_general"]
        for m in (MODEL, model)
    )  # fmt: skip
    assert turned[0]["cycles"] - kept[0]["cycles"] == 3 * 64 * 4
    assert turned[0]["bound_by"] == "transpose"


def test_what_does_not_fit_is_read_from_dram(tmp_path) -> None:
    fits, spilled = (found(tmp_path, dram=0.1, sram=size) for size in (1 << 20, 64))
    assert spilled["total_cycles"] > fits["total_cycles"]
    assert fits["peak_sram_bytes"] == spilled["peak_sram_bytes"] >= fits["lower_bound_bytes"]


@pytest.mark.parametrize("figure", ["macs", "elements", "sram_rate", "dram"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0, -1])
def test_rates_that_are_none_are_refused(tmp_path, figure, value) -> None:
    with pytest.raises(UserError, match="hardware"):
        found(tmp_path, **{figure: value})


def residual(p, x):
    """Layers between which floats are carried on, each read by the next layer and by a sum."""
    for i in range(6):
        x = x + jnp.tanh(x @ p[f"w{i}"] + p["b"])
    return x


def test_a_float_that_several_layers_read_is_computed_once(tmp_path) -> None:
    weights = {f"w{i}": np.ones((64, 64), np.float32) for i in range(6)}
    model = jq.Model(residual, weights | {"b": np.ones(64, np.float32)}, (X,))
    layers = found(tmp_path, device="llvm-cpu", model=model)["layers"]
    products = [row for row in layers if row["op"] == "dot_general"]
    assert len(products) == 6 and len(layers) <= 13  # six that quantize, and six sums at most
    # What a layer reads and writes does not grow with the layers in front of it, ...
    assert len({row["bytes"] for row in products[1:-1]}) == 1
    # ... and 32-bit sums of products never leave it: a float row in, codes in, a float row out.
    assert products[1]["bytes"] <= 64 * 64 + 4 * 64 * (4 + 1 + 4) + 64 * 16


def test_rows_are_taken_from_a_weight(tmp_path) -> None:
    model = jq.Model(
        lambda p, i: p["rows"][i] @ p["w"],
        {"rows": np.ones((5000, 64), np.float32), "w": np.ones((64, 8), np.float32)},
        (np.zeros(4, np.int32),),
    )
    layers = found(tmp_path, device="llvm-cpu", model=model)["layers"]
    assert sum(row["bytes"] for row in layers) < 5000 * 64 / 8


buffers = st.lists(
    st.builds(
        lambda n, first, length: Buffer("b", n, first, first + length),
        st.integers(1, 100),
        st.integers(0, 9),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(buffers)
def test_buffers_of_one_time_share_no_byte(drawn: list[Buffer]) -> None:
    done = placed(drawn)
    assert sorted(b.bytes for b in done) == sorted(b.bytes for b in drawn)
    for i, a in enumerate(done):
        for b in done[:i]:
            assert not a.meets(b) or a.end <= b.offset or b.end <= a.offset
    assert max((b.end for b in done), default=0) >= lower_bound(drawn)


def test_the_command_and_what_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "own.py").write_text(
        "import numpy as np, jq\n"
        "model = jq.Model(lambda p, x: x @ p, np.eye(4, dtype=np.float32),"
        " (np.ones((2, 4), np.float32),))\n"
    )
    name = f"{tmp_path}/own.py:model"
    drawn = tmp_path / "drawn.svg"
    command = ["estimate", name, "--target", "ethos-u55", "--json", "-q"]
    assert main([*command, "--picture", str(drawn)]) == 0
    document = json.loads(capsys.readouterr().out)
    titles = [e.text for e in ElementTree.parse(drawn).iter() if e.tag.endswith("title")]
    for row in document["layers"]:
        told = f"{row['name']} ({row['op']}): {row['cycles']} cycles, {row['bound_by']}"
        assert told in titles
    for b in document["buffers"]:
        assert f"{b['name']}: {b['bytes']} bytes at {b['offset']}" in titles
    assert main([*command, "--picture", str(drawn)]) == 2  # it is there already
    assert main([*command, "--picture", str(tmp_path / "drawn.png")]) == 2
    assert "a picture is an SVG file" in capsys.readouterr().err
    keys = {"layers", "total_cycles", "total_ms", "peak_sram_bytes", "utilization"}
    assert keys <= set(document)
    assert set(document["layers"][0]) == {
        "name", "op", "operations", "bytes", "cycles", "bound_by"
    }  # fmt: skip
    with pytest.raises(UserError, match=r"no table \[hardware\]"):
        jq.estimate(MODEL, "npu-int8")
