"""Settings, rules and their text: what is read, and one line for every mistake."""

from __future__ import annotations

import pytest

from jq.base.errors import UserError
from jq.target.rules import Rule, apply_overrides, parse_assignments, parse_rule, parse_value
from jq.target.settings import Settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int4", "int4"),
        ("'int4'", "int4"),
        ("32", 32),
        ("true", True),
        ("1.5", 1.5),
        ('["a", "b"]', ["a", "b"]),
        ("a,b", ["a", "b"]),
        (" per-block ", "per-block"),
    ],
)
def test_values(text, value):
    assert parse_value(text) == value


def test_assignments():
    assert parse_assignments(["weights.format=int4", "min_elements = 7"]) == {
        "weights.format": "int4",
        "min_elements": 7,
    }


@pytest.mark.parametrize("text", ["weights.format", "=int4", ""])
def test_no_assignment(text):
    with pytest.raises(UserError, match="cannot read setting .*; write key=value"):
        parse_assignments([text])


@pytest.mark.parametrize(
    ("text", "pattern", "override"),
    [
        ("head: float", "head", {"format": "float"}),
        ("head:float", "head", {"format": "float"}),
        (
            "encoder/*: weights.format=int4, min_elements=5",
            "encoder/*",
            {"weights.format": "int4", "min_elements": 5},
        ),
        ("re:layer[0-3]/.*: int8", "re:layer[0-3]/.*", {"format": "int8"}),
    ],
)
def test_rules(text, pattern, override):
    assert parse_rule(text) == Rule(pattern=pattern, override=override)


@pytest.mark.parametrize("text", ["head", "head:", ": float", ""])
def test_no_rule(text):
    with pytest.raises(UserError, match="write 'PATTERN: key=value"):
        parse_rule(text)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "weights.fromat",
            "int4",
            "unknown setting 'weights.fromat' .*; did you mean 'weights.format'",
        ),
        ("wieghts.format", "int4", "unknown setting 'wieghts.format'"),
        ("min_elements", "many", "settings: min_elements: .*got 'many'"),
        ("min_elements", -1, "min_elements"),
        ("weights.granularity", "per-row", "weights.granularity: .*'per-channel'"),
        ("weights.block_size", 0, "weights.block_size"),
        ("activation_products", "int4", "activation_products: .*'int8' or 'float'"),
        ("weights", "int4", "weights"),
    ],
)
def test_mistakes_are_one_line(key, value, message):
    with pytest.raises(UserError, match=message) as info:
        apply_overrides(Settings(), {key: value}, where="settings")
    assert "\n" not in str(info.value) and info.value.exit_code == 2


@pytest.mark.parametrize("key", ["weights.format", "activations.format", "format"])
def test_unknown_formats_list_the_known(key):
    with pytest.raises(UserError, match="unknown number format 'int5'.*did you mean 'int") as found:
        apply_overrides(Settings(), {key: "int5"}, where="settings")
    assert str(found.value).count("int5") == 1


def test_overrides_leave_the_rest_as_it_was():
    before = Settings()
    given = {"weights.format": "int4", "op_types": "gather", "recovery": "smooth, gptq"}
    after = apply_overrides(before, given, where="x")
    assert before == Settings()
    assert after.weights.format == "int4" and after.op_types == ("gather",)
    assert after.recovery == ("smooth", "gptq")
    assert after.activations == before.activations


def test_options_of_a_format_may_have_any_name():
    after = apply_overrides(Settings(), {"weights.options.divisor": "absmax/127.5"}, where="x")
    assert after.weights.options == {"divisor": "absmax/127.5"}


@pytest.mark.parametrize("key", ["weights.block_size", "weights.format", "weights.scheme"])
def test_what_python_gives_for_a_setting_may_be_anything(key: str) -> None:
    """An integer that Python itself does not write, and a name as long."""
    for value in (10**5000, -(10**5000), "9" * 5000, float("nan"), b"x", 1j, "\ud800"):
        with pytest.raises(UserError) as error:
            apply_overrides(Settings(), {key: value}, where="settings")
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("digits", [20, 4000, 5000, 100_000])
def test_a_number_of_many_digits_is_the_users_error(digits: int) -> None:
    number = "9" * digits

    def setting():
        pairs = parse_assignments([f"weights.block_size={number}"])
        apply_overrides(Settings(), pairs, where="--set")

    with pytest.raises(UserError) as found:
        setting()
    assert len(str(found.value)) < 1000
    with pytest.raises(UserError):
        parse_rule(f"w: block_size={number}")


@pytest.mark.parametrize(
    "text",
    [
        *("recovery=1", "recovery=0.0", "integer_only=1", "integer_only=yes", "minutes=true"),
        *("min_elements=true", 'min_elements="5"', "weights.block_size=false", 'minutes="1"'),
        *("minutes=1e400", "minutes=nan", "storage.inline_limit=true", "weights.block_size=３２"),
        *("min_elements=", "integer_only=", "minutes=-1", "weights.block_size=1e400"),
    ],
)
def test_a_setting_takes_no_value_of_another_type(text: str) -> None:
    key = text.partition("=")[0]
    with pytest.raises(UserError, match=f"settings: {key}: ") as found:
        apply_overrides(Settings(), parse_assignments([text]), where="settings")
    assert "\n" not in str(found.value)
    with pytest.raises(UserError):
        parse_rule(f"w: {text}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("w: format=int8, format=int4", "format is given twice"),
        ("w: int8, format=int4", "format is given twice"),
        ("w: int8, , min_elements=2", "format has no value|format is given twice"),
        ("w: weights.format=", "weights.format has no value"),
        ("w: minutes=1", "minutes is of the whole program"),
        ("w: attention_precision=float32", "attention_precision is of the whole program"),
        ("w: convolution_sums=float", "convolution_sums is of the whole program"),
    ],
)
def test_what_a_rule_cannot_say(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_rule(text)
