"""Config values mean what a reader sees, or are refused: in a YAML file and on the command line alike."""

from __future__ import annotations

import pytest
import torch

from components.config import Config, load_config, source_of, with_values
from components.errors import ConfigError
from components.language.torch_seeds import torch_seed

LARGEST = 9223372036854775807
SEEDS = ("seed", "data.seed", "environment.seed", "pretrain.seed")


def in_a_file(folder, key, text):
    """A YAML file that gives `key` the value `text`, as it stands."""
    *sections, leaf = key.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)]
    path = folder / "mine.yaml"
    path.write_text("\n".join([*lines, f"{'  ' * len(sections)}{leaf}: {text}"]) + "\n")
    return path


def both_ways(folder, key, text):
    """The value that `text` becomes in a file and as an override; ConfigError from both if one refuses it."""
    found = []
    for path, overrides in ((in_a_file(folder, key, text), []), (None, [f"{key}={text}"])):
        try:
            value = load_config(path, overrides)
            for name in key.split("."):
                value = getattr(value, name)
        except ConfigError as error:
            value = str(error)
        found.append(value)
    assert found[0] == found[1] or str(found[0]).replace(f" {folder / 'mine.yaml'}", "") == found[1]
    return found[1]


@pytest.mark.parametrize("key", SEEDS)
@pytest.mark.parametrize("text", ["0", "7", "20261126045005", str(LARGEST)])
def test_a_seed_is_the_integer_that_stands_there(tmp_path, key, text):
    assert both_ways(tmp_path, key, text) == int(text)


@pytest.mark.parametrize("key", SEEDS)
@pytest.mark.parametrize(
    "text",
    [
        "true",
        "010",
        "1:30",
        "0x1F",
        "0o17",
        "0b11",
        "1_000",
        "1e3",
        "3.0",
        '"3"',
        "'3'",
        "+3",
        "null",
        "yes",
        "٣",
        "[3]",
        "2026-11-26",
    ],
)
def test_another_spelling_of_a_seed_is_refused(tmp_path, key, text):
    assert f"{key} " in (said := both_ways(tmp_path, key, text)) and "expected an integer" in said


@pytest.mark.parametrize("text", ["-1", str(LARGEST + 1), "9" * 400, "9" * 5000])
def test_a_seed_out_of_range_is_refused_with_the_range(tmp_path, text):
    assert f"expected 0 to {LARGEST}" in both_ways(tmp_path, "seed", text)


def test_the_octal_that_yaml_would_make_of_a_seed_is_named(tmp_path):
    assert "seed is 010: expected an integer in decimal digits" in (
        said := both_ways(tmp_path, "seed", "010")
    )
    assert "YAML 1.1 reads this as 8" in said


COUNTS = {
    "8_000_000": 8_000_000,
    "1_000": 1000,
    "300": 300,
    "1e3": 1000,
    "2.0e6": 2_000_000,
    "3.0": 3,
    "0": 0,
    "+5": 5,
}


@pytest.mark.parametrize("text", COUNTS)
def test_a_count_may_have_groups_of_digits(tmp_path, text):
    value = both_ways(tmp_path, "experience_model.transitions", text)
    assert value == COUNTS[text] and type(value) is int


@pytest.mark.parametrize(
    "text",
    [
        "010",
        "1:30",
        "0x1F",
        "0b1",
        "10_00",
        "1_0000",
        "_1",
        "1_",
        "2.5",
        '"3"',
        "true",
        "yes",
        "",
        "~",
        ".inf",
    ],
)
def test_what_a_reader_may_take_for_another_count_is_refused(tmp_path, text):
    assert "expected an integer" in both_ways(tmp_path, "experience_model.transitions", text)


def test_a_count_beyond_64_bits_is_refused(tmp_path):
    for text in ("9223372036854775808", "1e30", "1e9999", "9" * 5000):
        assert f"to {LARGEST}" in both_ways(tmp_path, "experience_model.transitions", text)


NUMBERS = {"1e-3": 0.001, "5.0e-5": 5e-5, ".5": 0.5, "1": 1.0, "1_000.5": 1000.5, "1E+2": 100.0}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_decimal(tmp_path, text):
    value = both_ways(tmp_path, "rl.dream.learning_rate", text)
    assert value == NUMBERS[text] and type(value) is float


@pytest.mark.parametrize(
    "text", ["010.5", "010", "1:30.5", "0x1F", "true", "on", '"0.1"', ".inf", ".nan", "1e400", "null"]
)
def test_another_spelling_of_a_number_is_refused(tmp_path, text):
    assert (
        "rl.dream.learning_rate is " in (said := both_ways(tmp_path, "rl.dream.learning_rate", text))
        and "number" in said
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("yes", True),
        ("on", True),
        ("True", True),
        ("false", False),
        ("no", False),
        ("off", False),
    ],
)
def test_a_truth_value_is_a_word(tmp_path, text, value):
    assert both_ways(tmp_path, "curriculum.enabled", text) is value


@pytest.mark.parametrize("text", ["1", "0", "t", '"true"', "null", "y", "1.0", ""])
def test_a_number_is_no_truth_value(tmp_path, text):
    assert (
        "curriculum.enabled is " in (said := both_ways(tmp_path, "curriculum.enabled", text))
        and "expected true or false" in said
    )


@pytest.mark.parametrize("text", ["010", "2026", "yes", "2026-11-26", "1:30", "1e3", "true"])
def test_a_text_is_the_text_as_written(tmp_path, text):
    assert both_ways(tmp_path, "backbone.path", text) == text
    assert both_ways(tmp_path, "data.families", f"[{text}]") == [text]


def test_null_is_no_text_and_an_empty_value_is_empty_text(tmp_path):
    assert "expected text" in both_ways(tmp_path, "backbone.path", "null")
    assert "expected text" in both_ways(tmp_path, "backbone.path", "~")
    assert both_ways(tmp_path, "backbone.path", "") == ""
    assert both_ways(tmp_path, "tracking.experiment", "'null'") == "null"


def test_a_value_that_may_be_missing_takes_null(tmp_path):
    assert both_ways(tmp_path, "promotion.draw", "null") is None
    assert both_ways(tmp_path, "promotion.draw", "30") == 30
    assert "expected an integer" in both_ways(tmp_path, "promotion.draw", "010")


def test_python_values_are_held_to_the_same_rules():
    for values in (
        {"seed": True},
        {"seed": 3.0},
        {"seed": "3"},
        {"threads": True},
        {"threads": "2"},
        {"curriculum": {"enabled": 1}},
    ):
        with pytest.raises(ValueError, match="expected"):
            Config.model_validate(values)
    assert (
        Config.model_validate(
            {"seed": 3, "threads": 2, "rl": {"dream": {"learning_rate": 1}}}
        ).rl.dream.learning_rate
        == 1.0
    )


TWICE = {
    "cloning: {epochs: 5}\nseed: 1\ncloning: {demonstrations: 7}\n": ("cloning", 3, 1),
    "cloning:\n  lora:\n    rank: 3\n    rank: 4\n": ("rank", 4, 3),
    "seed: 1\nseed: 1\n": ("seed", 2, 1),
    "seed: 1\n'seed': 2\n": ("seed", 2, 1),
    '{"seed": 1,\n "seed": 2}': ("seed", 2, 1),
    "data:\n  families:\n    - {a: 1,\n       a: 2}\n": ("a", 4, 3),
    "cloning:\n  <<: {epochs: 5}\n  <<: {demonstrations: 7}\n": ("<<", 3, 2),
    "cloning: &c\n  epochs: 5\n  epochs: 6\nsynthetic_rl:\n  <<: *c\n": ("epochs", 3, 2),
}


@pytest.mark.parametrize("text", TWICE)
def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path, text):
    key, again, first = TWICE[text]
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(
        ConfigError, match=f"mine.yaml is refused: line {again}: the key {key} is already in line {first}"
    ):
        load_config(tmp_path / "mine.yaml")


def test_merged_sections_give_what_they_say_and_must_agree(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "cloning: &c\n  epochs: 5\n  demonstrations: 7\nexperience_model:\n  <<: {epochs: 2}\n  epochs: 3\n"
    )
    assert load_config(path).experience_model.epochs == 3 and load_config(path).cloning.demonstrations == 7
    path.write_text("cloning:\n  <<: [{epochs: 5}, {epochs: 6}]\n")
    with pytest.raises(ConfigError, match="line 2: << brings in the key epochs twice, with different values"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: !!int 010\n", "line 1: the tag !!int is not allowed"),
        ("seed: 1\n--- \nseed: 2\n", "line 2.*another document"),
        ("data: &a [*a]\n", "an alias contains itself"),
        ("cloning.epochs: 3\n", "dots are for the command line. Expected epochs below the section cloning"),
        ("cloning: 3\n", "cloning is 3: expected a section with keys below it"),
        ("- 1\n", "holds a list"),
    ],
)
def test_other_yaml_that_is_no_config_is_refused_in_words(tmp_path, text, words):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path / "mine.yaml")


def test_aliases_of_aliases_cost_no_time(tmp_path):
    lines = ["data: &l0 [1]", *(f"x{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))]
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="data is a list of 1"):
        load_config(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=1", "seed=2"],
        ["cloning.epochs=2", "cloning={epochs: 3}"],
        ["cloning={epochs: 3}", "cloning={epochs: 4}"],
        ["seed=1", "seed=01"],
    ],
)
def test_overrides_that_disagree_are_refused(overrides):
    with pytest.raises(ConfigError, match="The command line gives .* twice, with different values"):
        load_config(None, overrides)


def test_what_disagrees_is_not_repeated_since_it_may_hold_a_password():
    for overrides in (
        ["tracking.uri=http://u:hidden@a", "tracking.uri=b"],
        ["tracking.uri='http://u:hidden"],
    ):
        with pytest.raises(ConfigError, match=r"tracking\.uri") as raised:
            load_config(None, overrides)
        assert "hidden" not in str(raised.value)


def test_overrides_that_agree_and_sections_are_joined(tmp_path):
    (tmp_path / "mine.yaml").write_text("cloning: {epochs: 5, demonstrations: 7}\n")
    config = load_config(
        tmp_path / "mine.yaml", ["seed=1", "seed=1", "cloning={epochs: 2}", "cloning.learning_rate=0.5"]
    )
    assert (
        config.seed,
        config.cloning.epochs,
        config.cloning.demonstrations,
        config.cloning.learning_rate,
    ) == (1, 2.0, 7, 0.5)
    (tmp_path / "mine.yaml").write_text("cloning:\n")
    assert load_config(tmp_path / "mine.yaml", ["cloning.epochs=2"]).cloning.epochs == 2.0


def test_torch_takes_a_seed_of_any_size_and_a_usual_one_as_it_is():
    for seed in (0, 7, 2**64 - 1, -(2**63)):
        assert torch_seed(seed) == seed
    for seed in (2**64, LARGEST * 10_007 * 1_000_003, -(2**64)):
        torch.Generator().manual_seed(torch_seed(seed))
    assert torch_seed(2**64 + 5) == 5


@pytest.mark.parametrize("text", ["Buy item #3", "#3", "a # b", " x #y"])
def test_text_behind_a_hash_on_the_command_line_is_not_dropped(text):
    for key in ("environment.text.instruction", "tracking.experiment"):
        with pytest.raises(ConfigError, match="reads the text after '#' as a comment"):
            load_config(None, [f"{key}={text}"])


def test_a_hash_inside_a_word_or_in_quotes_is_text():
    for text, value in (("item#3", "item#3"), ("'Buy item #3'", "Buy item #3")):
        assert load_config(None, [f"tracking.experiment={text}"]).tracking.experiment == value


@pytest.mark.parametrize(
    "name", ["''", "team/run", "team:run", '"a\\nb"', '"a\\0b"', "' a'", "'a '", "a" * 201]
)
def test_an_experiment_whose_models_mlflow_could_not_register_is_refused(name):
    with pytest.raises(ConfigError, match="tracking.experiment is .*expected 1 to 200 characters"):
        load_config(None, [f"tracking.experiment={name}"])


def test_more_threads_than_any_machine_starts_are_refused():
    with pytest.raises(ConfigError, match="threads is 1000000: expected 1 to 1024"):
        load_config(None, ["threads=1000000"])


def test_values_that_are_set_later_keep_the_file_and_the_overrides():
    config = load_config(None, ["seed=3"])
    changed = with_values(config, {"environment.max_steps": 7, "rl.dream.max_new_tokens": 99})
    assert (changed.environment.max_steps, changed.rl.dream.max_new_tokens, changed.seed) == (7, 99, 3)
    assert source_of(changed) == source_of(config) and source_of(config).overrides == ("seed=3",)
    assert config.environment.max_steps == 20
