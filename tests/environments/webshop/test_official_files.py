"""Product files of the official form: read, cut into splits, and refused where they are damaged."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.webshop.shop import catalogue, generated, official
from components.environments.webshop.shop.products import NO_LIMIT, human_goals, read_product, synthetic_goals
from components.errors import EnvironmentFailure
from components.trajectories.recording import collect, plan

RECORD = {
    "asin": "B0912345AB",
    "name": "Zimco Men's Casual Shirt, Long Sleeve (Regular / Tall) - Summer",
    "category": "fashion",
    "query": " Men's Dress Shirts ",
    "product_category": "Clothing › Men › Shirts",
    "full_description": "A shirt. It is soft: very soft.",
    "small_description": ["Made of cotton, 100%.", "Button closure"],
    "pricing": "$1,019.99 - $1,029.50",
    "customization_options": {
        "Color": [{"value": "Navy/White ", "image": None}, {"value": "Red"}],
        "Size": [{"value": "3X-Large"}],
        "Style": None,
    },
}
HUMAN = {
    "instruction": "i need a navy cotton shirt.",
    "instruction_attributes": ["cotton"],
    "instruction_options": ["navy | white"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with official files of 450 generated products and 1800 goals; the variable is set."""
    records, attributes, goals = generated.generate_records(450, 7)
    for name, values in (
        ("items_shuffle_1000", records),
        ("items_ins_v2_1000", attributes),
        ("items_human_ins", goals),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    monkeypatch.setenv(official.VARIABLE, str(tmp_path))
    catalogue._official_catalogue.cache_clear()
    yield tmp_path
    catalogue._official_catalogue.cache_clear()


def test_a_record_becomes_a_product():
    product = read_product(RECORD, {"B0912345AB": {"attributes": ["cotton", "button closure"]}}, "f.json")
    assert product.query == "men's dress shirts" and product.attributes == ("cotton", "button closure")
    assert product.options == {"color": ("navy | white", "red"), "size": ("3x-large",)}
    assert product.prices == (1019.99, 1029.5) and product.price == 1019.99
    assert product.price_tag == "$1019.99 to $1029.5"
    assert product.indexed == (
        "zimco men's casual shirt, long sleeve (regular / tall) - summer a shirt. it is soft: very soft. "
        "made of cotton, 100%. "
        "color: navy | white, red, and size: 3x-large"
    )
    assert read_product(RECORD, {}, "f.json") == read_product(dict(RECORD), {}, "f.json")
    assert read_product(RECORD, {}, "f.json").attributes == ("DUMMY_ATTR",)


@pytest.mark.parametrize(
    "field", ["asin", "name", "query", "product_category", "small_description", "customization_options"]
)
def test_a_missing_field_is_named_with_its_file_and_product(field):
    broken = {name: value for name, value in RECORD.items() if name != field}
    asin = "without asin" if field == "asin" else "B0912345AB"
    with pytest.raises(
        EnvironmentFailure,
        match=f"f.json: the field '{field}' of the product {asin} is missing.*catalogue=generated",
    ):
        read_product(broken, {}, "f.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": 7}, "'query' of the product B0912345AB is 7, not a text"),
        (
            {"pricing": "$ten"},
            "'pricing' of the product B0912345AB is '\\$ten', which is no price in dollars",
        ),
        ({"customization_options": {"Size": [{"worth": 1}]}}, "'customization_options' .* cannot be read"),
        ({"customization_options": [1]}, "'customization_options' .* cannot be read"),
    ],
)
def test_a_field_of_another_type_is_named(change, message):
    with pytest.raises(EnvironmentFailure, match=message):
        read_product(RECORD | change, {}, "f.json")


def test_what_the_original_skips_is_not_refused(folder):
    """A record without an asin is `nan` there, whatever else it lacks. A group of options may be empty."""
    file = folder / "items_shuffle_1000.json"
    file.write_text(json.dumps([{"asin": "nan"}, {"asin": "B0123456789"}, *json.loads(file.read_text())]))
    assert len(official.read_catalogue_files(folder, "human")[0]) == 450
    product = read_product(
        RECORD | {"customization_options": {"Size": [], "Color": [{"value": "Red"}]}}, {}, "f.json"
    )
    assert product.options == {"color": ("red",)}
    assert human_goals(product, None, "h.json") == []


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda product: human_goals(product, {"a": 1}, "h.json"),
            "'goals' of the product B0912345AB is {'a': 1}, not a list",
        ),
        (
            lambda product: human_goals(product, [HUMAN | {"instruction": 7}], "h.json"),
            "'instruction' .* is 7 in goal 0, not a text",
        ),
        (
            lambda product: synthetic_goals(product, ["x"], "i.json"),
            r"'instruction' .* is in \['x'\], which is no mapping",
        ),
        (
            lambda product: synthetic_goals(product, {"instruction": 7}, "i.json"),
            "'instruction' .* is 7, not a text",
        ),
        (
            lambda product: read_product(RECORD, {"B0912345AB": [1]}, "i.json"),
            r"'instruction' .* is in \[1\]",
        ),
    ],
)
def test_goals_of_another_type_are_named(read, message):
    with pytest.raises(EnvironmentFailure, match=message):
        read(read_product(RECORD, {}, "f.json"))


def test_human_goals_get_a_price_limit_and_those_without_attributes_are_left_out():
    product = read_product(RECORD | {"pricing": "$24.99"}, {}, "f.json")
    (goal,) = human_goals(product, [HUMAN, HUMAN | {"instruction_attributes": []}], "h.json")
    assert (
        goal.instruction == f"i need a navy cotton shirt, and price lower than {goal.price_upper:.2f} dollars"
    )
    assert (goal.key, goal.attributes, goal.options) == ("B0912345AB/0", ("cotton",), ("navy | white",))
    assert goal.price_upper in (40.0, 50.0, 60.0)
    with pytest.raises(
        EnvironmentFailure,
        match="h.json: the field 'instruction_options' of the product B0912345AB is missing in goal 0",
    ):
        human_goals(product, [{"instruction": "x", "instruction_attributes": ["y"]}], "h.json")


def test_a_goal_above_the_highest_limit_has_no_limit():
    (goal,) = human_goals(read_product(RECORD, {}, "f.json"), [HUMAN], "h.json")
    assert goal.price_upper == NO_LIMIT and goal.instruction == "i need a navy cotton shirt"


def test_there_is_one_synthetic_goal_per_combination_of_options():
    product = read_product(RECORD | {"pricing": "$24.99"}, {}, "f.json")
    entry = {"instruction": "Find me a cotton shirt", "instruction_attributes": ["cotton"]}
    goals = synthetic_goals(product, entry, "i.json")
    assert [goal.options for goal in goals] == [("navy | white", "3x-large"), ("red", "3x-large")]
    assert goals[1].instruction.startswith(
        "Find me a cotton shirt with color: red, and size: 3x-large, and price lower than "
    )
    assert (
        synthetic_goals(product, {"attributes": ["cotton"]}, "i.json")
        == []
        == synthetic_goals(product, None, "i.json")
    )
    with pytest.raises(EnvironmentFailure, match="i.json: the field 'instruction_attributes' .* is missing"):
        synthetic_goals(product, {"instruction": "x"}, "i.json")


def test_auto_uses_the_official_files_where_the_variable_is_set(folder):
    adapter = make_adapter(EnvironmentConfig(name="webshop"))
    assert adapter.source == "official" and len(adapter.catalogue.products) == 450
    assert "not equal" in adapter.notice
    goals = adapter.catalogue.splits
    assert len(goals["test"]) == 500 and len(goals["train"]) == 1800 - 1500
    tasks = adapter.tasks("train", 20, 0)
    assert not {task.id for task in tasks} & {task.id for task in adapter.tasks("test", 500, 0)}
    played = collect(adapter, plan(tasks, {"expert": 1}, 0), 20)
    assert sum(episode.success for episode in played) >= 18
    with pytest.raises(
        EnvironmentFailure, match="official catalogue has 500 goals of the split test.*at least 501"
    ):
        adapter.tasks("test", 501, 0)


def test_goals_are_shuffled_and_cut_as_in_the_benchmark(folder):
    import random

    products, goals, unpriced = official.read_catalogue_files(folder, "human")
    assert unpriced == 0
    random.Random(233).shuffle(goals)
    splits = make_adapter(EnvironmentConfig(name="webshop")).catalogue.splits
    assert splits["test"] == goals[:500] and splits["train"] == goals[1500:]


def test_without_the_variable_auto_generates_and_official_is_refused(monkeypatch):
    monkeypatch.delenv(official.VARIABLE, raising=False)
    assert EnvironmentConfig(name="webshop").webshop.source == "generated"
    with pytest.raises(
        EnvironmentFailure, match="goals=synthetic, but the products are generated.*export WEBSHOP_DATA"
    ):
        make_adapter(EnvironmentConfig(name="webshop", webshop={"goals": "synthetic"}))
    with pytest.raises(EnvironmentFailure, match="WEBSHOP_DATA is ''.*setup.sh.*catalogue=generated"):
        make_adapter(EnvironmentConfig(name="webshop", webshop={"catalogue": "official"}))


def test_the_official_and_the_generated_shop_have_different_identities(folder, monkeypatch):
    """No stage is reused and no data is taken between the two, and the error names the variable."""
    auto = EnvironmentConfig(name="webshop")
    (task,) = make_adapter(auto).tasks("train", 1, 0)
    assert auto.decisive()["webshop"]["catalogue"] == "official"
    with pytest.raises(ValidationError, match="seed.*catalogue: auto and .WEBSHOP_DATA set"):
        EnvironmentConfig(name="webshop", seed=3)
    with pytest.raises(ValidationError, match="products.*catalogue: auto and .WEBSHOP_DATA set"):
        EnvironmentConfig(name="webshop", webshop={"products": 600})
    monkeypatch.delenv(official.VARIABLE)
    assert auto.decisive()["webshop"]["catalogue"] == "auto", "as data recorded before says it"
    with pytest.raises(
        EnvironmentFailure, match=r"catalogue=auto also \$WEBSHOP_DATA decides, which is not set here"
    ):
        make_adapter(auto).open().reset([task])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("items_ins_v2_1000", None, "There is no .*items_ins_v2_1000.json"),
        ("items_human_ins", "{", "items_human_ins.json is no JSON"),
        ("items_shuffle_1000", "{}", "items_shuffle_1000.json holds a dict.*Expected a list"),
        (
            "items_shuffle_1000",
            "[7]",
            "items_shuffle_1000.json: the field 'asin' of the product that is no mapping is missing",
        ),
    ],
)
def test_a_damaged_file_is_named(folder, name, content, message):
    path = folder / f"{name}.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(EnvironmentFailure, match=message):
        make_adapter(EnvironmentConfig(name="webshop"))


def test_experts_shop_for_official_products_with_free_text_goals(tmp_path, monkeypatch):
    record = RECORD | {
        "pricing": "$24.99",
        "customization_options": {
            "Color": [{"value": f"Shade {n}"} for n in range(40)] + [{"value": "navy/white"}],
            "Size": [{"value": "Large"}],
        },
    }
    words = {
        "instruction": "i am looking for a navy white men's shirt made of cotton in size large.",
        "instruction_attributes": ["cotton"],
    }
    goal = words | {"instruction_options": ["navy | white", "large"]}
    asins = [f"B{number:09d}" for number in range(40)]
    for name, values in (
        ("items_shuffle", [record | {"asin": asin} for asin in asins]),
        ("items_ins_v2", {asin: {"attributes": ["cotton"]} for asin in asins}),
        ("items_human_ins", {asin: [goal] * 40 for asin in asins}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    monkeypatch.setenv(official.VARIABLE, str(tmp_path))
    adapter = make_adapter(EnvironmentConfig(name="webshop"))
    catalogue._official_catalogue.cache_clear()
    tasks = adapter.tasks("train", 3, 0)
    played = collect(adapter, plan(tasks, {"expert": 1, "noisy": 1, "near_miss": 1, "random": 1}, 0), 12)
    assert all(episode.success for episode in played if episode.steps[0].behaviour == "expert")
    item = next(step.next_state for step in played[0].steps if step.next_state.startswith("item 1"))
    assert (
        item.startswith("item 1: zimco men's casual shirt for 25. color: navy white, shade 0, shade 1,")
        and "shade 15" not in item
    )
    for episode in played:
        for step in episode.steps:
            assert adapter.contradiction(episode.up_to(step.step), step.next_state) == ""
            assert len(step.next_state) < 1200
    body = adapter.embody(played[0])
    world = adapter.open()
    world.reset([body])
    assert [world.step([step.action])[0].state for step in played[0].steps] == played[0].states[1:]
    assert adapter.feasible(tasks[0]) == "" and adapter.feasible(
        type(tasks[0])(**{**tasks[0].__dict__, "instruction": "be happy"})
    )
