"""Pipeline files, what is wrong with them in one line, and what each level may hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jq.base.errors import InternalError, UserError
from jq.base.system.folders import data_dir
from jq.ir import Program
from jq.ir.markers import marker_kind
from jq.passes.base import Pass, PassContext, known_passes, run_all
from jq.passes.iree_mends.mend import Mend
from jq.passes.pipeline import LEVELS, load_pipeline, make_plan, prepare, rewrite
from jq.passes.pipeline.rewriting import check_level
from jq.planning.decisions import QuantPlan
from jq.target.rules import Rule
from jq.target.target import load_target
from tests.support.programs import evaluated
from tests.support.texts import inputs_of, load

PIPELINES = sorted(path.stem for path in data_dir("pipelines").glob("*.toml"))
DENSE = """(%x: tensor<4x8xf32>, %w: tensor<8x16xf32> {jq.weight = "w"}) -> tensor<4x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}"""


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_file_loads(name):
    pipeline = load_pipeline(name)
    assert pipeline.name == name and pipeline.description.endswith(".")
    assert pipeline.passes["qdq"] and pipeline.passes["integer"] and pipeline.passes["target"]


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_mends_what_the_compiler_gets_wrong(name):
    """See `tests/traps`."""
    pipeline = load_pipeline(name)
    names = {p.name for level in LEVELS for p in pipeline.passes[level]}
    mends = {kind for kind in known_passes().values() if issubclass(kind, Mend)}
    cures = {kind.name for kind in mends if kind.finds is not Mend.finds}
    assert cures | {"clamp-indices", "saturate-converts"} <= names


def test_a_file_of_ones_own(tmp_path):
    path = write(
        tmp_path,
        """description = "Mine."
        [settings]
        weights.format = "int4"
        weights.granularity = "per-block"
        [[rules]]
        pattern = "head"
        override = { format = "float" }
        """,
    )
    pipeline = load_pipeline(path)
    assert (pipeline.name, pipeline.settings.weights.format) == ("mine", "int4")
    assert pipeline.rules == (Rule(pattern="head", override={"format": "float"}),)


def test_a_file_with_a_base(tmp_path):
    path = write(
        tmp_path,
        """base = "int8-dynamic"
        [settings]
        weights.format = "int4"
        [[rules]]
        pattern = "head"
        override = { format = "float" }
        """,
    )
    (tmp_path / "twice.toml").write_text('base = "mine.toml"\n[[rules]]\npattern="a"\noverride={}')
    base, pipeline = load_pipeline("int8-dynamic"), load_pipeline(str(tmp_path / "twice.toml"))
    assert (pipeline.name, pipeline.settings.weights.format) == ("twice", "int4")
    assert pipeline.settings.activations == base.settings.activations
    assert [r.pattern for r in pipeline.rules] == ["a", "head"]
    assert pipeline.passes["target"] == base.passes["target"]
    assert load_pipeline(path).description == base.description


def test_a_base_of_itself_is_refused(tmp_path):
    with pytest.raises(UserError, match="base of itself"):
        load_pipeline(write(tmp_path, 'base = "mine.toml"'))


def test_the_users_rules_come_first(tmp_path):
    own = Rule(pattern="a", override={"format": "int8"})
    path = write(tmp_path, '[[rules]]\npattern = "b"\noverride = {}')
    assert [r.pattern for r in load_pipeline(path, rules=(own,)).rules] == ["a", "b"]


def test_overrides_win_over_the_file():
    pipeline = load_pipeline("int8-dynamic", {"weights.format": "int4", "min_elements": 9})
    assert pipeline.settings.weights.format == "int4" and pipeline.settings.min_elements == 9
    assert pipeline.settings.activations == load_pipeline("int8-dynamic").settings.activations
    assert pipeline.explicit == {"weights.format", "min_elements"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings", "cannot read mine.toml"),
        ("# nothing", "mine.toml says nothing.*ours: jaxq list pipelines"),
        ("setings = {}", "unknown key 'setings' in pipeline mine; known: .*settings"),
        ("[weights]\nformat = 'int4'", r"setting 'weights' outside of \[settings\]; write it"),
        ("[settings]\nweights.fromat = 'int8'", "unknown setting 'weights.fromat' in pipeline"),
        ("[[passes.qdq]]\nname = 'place-weights'\nwhy = 'x'", "follows from the settings; .*write"),
        (
            "[[rules]]\npattern = 'a'\noverride = {wights = 1}",
            "unknown setting 'wights' in rule 'a'",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as info:
        load_pipeline(write(tmp_path, text))
    assert "\n" not in str(info.value)


def test_an_unknown_pipeline_lists_the_known():
    with pytest.raises(UserError, match="int8-dinamic.*int8-dynamic"):
        load_pipeline("int8-dinamic")


# Levels


def levels(text: str, name: str = "int8-dynamic") -> dict[str, Program]:
    pipeline, target = load_pipeline(name), load_target("llvm-cpu")
    program = prepare(load(text), pipeline, target)
    plan = make_plan(program, pipeline, target)
    return rewrite(program, pipeline, PassContext(plan, pipeline.settings, target))


def test_each_level_is_a_program_of_its_own_with_the_same_function():
    programs = levels(DENSE)
    assert tuple(programs) == LEVELS
    assert len({id(p.module) for p in programs.values()}) == len(LEVELS)
    x = inputs_of(programs["float"])
    qdq, integer = (evaluated(programs[level], *x)[0] for level in ("qdq", "integer"))
    # Sums of eight products, rounded in another order.
    np.testing.assert_allclose(integer, qdq, rtol=0, atol=8 * 2.0**-23 * np.abs(qdq).max() * 8)
    assert any(marker_kind(op) for op in programs["qdq"].walk())


def test_markers_are_not_of_the_integer_level():
    with pytest.raises(UserError, match="a marker is left at level integer .*lower-markers"):
        check_level(levels(DENSE)["qdq"], "integer")


UNFIT = {
    "shield-unsigned": """(%x: tensor<4x8xui8>, %w: tensor<8x3xui8>) -> tensor<4x3xi32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
           : (tensor<4x8xui8>, tensor<8x3xui8>) -> tensor<4x3xi32>
      return %0 : tensor<4x3xi32> }""",
    "multiply-outer": """(%x: tensor<3x5x1xi8>, %w: tensor<1x8xi8>) -> tensor<3x5x8xi32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
           : (tensor<3x5x1xi8>, tensor<1x8xi8>) -> tensor<3x5x8xi32>
      return %0 : tensor<3x5x8xi32> }""",
    "widen-depthwise": """(%x: tensor<1x5x3xi8>, %w: tensor<3x1x3xi8>) -> tensor<1x3x3xi32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {} {batch_group_count = 1 : i64, feature_group_count = 3 : i64}
        : (tensor<1x5x3xi8>, tensor<3x1x3xi8>) -> tensor<1x3x3xi32>
      return %0 : tensor<1x3x3xi32> }""",
    "order-broadcasts": """(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
      %0 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
      return %0 : tensor<3x2xf32> }""",
    "plain-windows": """(%x: tensor<1x5x3xf32>, %w: tensor<3x3x4xf32>) -> tensor<1x3x4xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x5x3xf32>, tensor<3x3x4xf32>) -> tensor<1x3x4xf32>
      return %0 : tensor<1x3x4xf32> }""",
    "plain-transforms": """(%x: tensor<3x6xf32>) -> tensor<3x4xcomplex<f32>> {
      %0 = stablehlo.fft %x, type = RFFT, length = [6]
        : (tensor<3x6xf32>) -> tensor<3x4xcomplex<f32>>
      return %0 : tensor<3x4xcomplex<f32>> }""",
    "shield-slices": """(%x: tensor<9xf32>) -> tensor<3xf32> {
      %0 = stablehlo.slice %x [0:9:3] : (tensor<9xf32>) -> tensor<3xf32>
      %1 = stablehlo.reverse %0, dims = [0] : tensor<3xf32>
      return %1 : tensor<3xf32> }""",
    "shield-filters": """(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x1x4xi8>)
        -> tensor<1x6x6x4xf32> {
      %0 = stablehlo.convert %w : (tensor<3x3x1x4xi8>) -> tensor<3x3x1x4xf32>
      %1 = stablehlo.convolution(%x, %0) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
        : (tensor<1x8x8x4xf32>, tensor<3x3x1x4xf32>) -> tensor<1x6x6x4xf32>
      return %1 : tensor<1x6x6x4xf32> }""",
    "plain-booleans": """(%x: tensor<5x6xi1>, %w: tensor<6x4xf32>) -> tensor<5x4xf32> {
      %0 = stablehlo.convert %x : (tensor<5x6xi1>) -> tensor<5x6xf32>
      %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
        : (tensor<5x6xf32>, tensor<6x4xf32>) -> tensor<5x4xf32>
      return %1 : tensor<5x4xf32> }""",
    "shield-carries": """(%x: tensor<f32>, %a: tensor<i1>) -> (tensor<i1>, tensor<f32>) {
      %0:2 = stablehlo.while(%b = %a, %y = %x) : tensor<i1>, tensor<f32>
        cond { stablehlo.return %b : tensor<i1> }
        do {
          %1 = stablehlo.add %y, %y : tensor<f32>
          %2 = stablehlo.is_finite %1 : (tensor<f32>) -> tensor<i1>
          stablehlo.return %2, %1 : tensor<i1>, tensor<f32>
        }
      return %0#0, %0#1 : tensor<i1>, tensor<f32> }""",
    "shield-starts": """(%x: tensor<f32>, %a: tensor<i1>) -> (tensor<f32>, tensor<f32>) {
      %0 = stablehlo.negate %x : tensor<f32>
      %1:2 = stablehlo.while(%b = %a, %y = %0) : tensor<i1>, tensor<f32>
        cond { stablehlo.return %b : tensor<i1> }
        do {
          %2 = stablehlo.add %y, %y : tensor<f32>
          %3 = stablehlo.is_finite %y : (tensor<f32>) -> tensor<i1>
          %4 = stablehlo.and %3, %b : tensor<i1>
          stablehlo.return %4, %2 : tensor<i1>, tensor<f32>
        }
      return %1#1, %0 : tensor<f32>, tensor<f32> }""",
    "clamp-indices": """(%x: tensor<5x6xf32>, %i: tensor<3x1xi32>) -> tensor<3x6xf32> {
      %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 6>}> : (tensor<5x6xf32>, tensor<3x1xi32>) -> tensor<3x6xf32>
      return %0 : tensor<3x6xf32> }""",
    "plain-scatters": """(%x: tensor<5xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>)
        -> tensor<5xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        stablehlo.return %b : tensor<f32>
      }) : (tensor<5xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32> }""",
}


@pytest.mark.parametrize("cure", UNFIT)
def test_what_the_compiler_gets_wrong_is_not_of_the_target_level(cure):
    program = load(UNFIT[cure])
    check_level(program, "integer")
    with pytest.raises(UserError, match=f"the pass {cure} does"):
        check_level(program, "target")
    check_level(levels(UNFIT[cure], "float")["target"], "target")


class Untold(Pass):
    """Breaks a program and says that it changed nothing."""

    def run(self, program: Program, cx: PassContext) -> bool:
        program.weights["extra"] = np.zeros(1, np.float32)
        return False


def test_what_a_pass_does_not_tell_is_verified_too() -> None:
    program, pipeline = load(DENSE), load_pipeline("float")
    cx = PassContext(QuantPlan((), {}), pipeline.settings, load_target("llvm-cpu"))
    with pytest.raises(InternalError, match="1 weight arguments, 2 weights"):
        run_all([Untold()], program, cx)
