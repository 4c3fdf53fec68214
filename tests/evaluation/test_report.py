"""The report of a run: complete, self-contained, escaped, and valid for runs without some of the data."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from components.errors import DataError
from components.evaluation.report.charts import curve_svg, sparkline
from components.evaluation.report.curriculum_figure import curriculum_svg
from components.evaluation.report.metric_titles import TERMS, title_of
from components.evaluation.report.run_report import ReportData, summary, write_report

SCRIPT = "<script>alert(1)</script>"

STEP = {"action": "go", "state": f"You see {SCRIPT}.\n```\n# no title"}
SECTIONS = (
    *("Success on held-out real games", "Decision", "Learning", "Fidelity", "Curriculum", "Costs", "Stages"),
    *("Dreamed episodes", "Where to"),
)
FIGURES = (
    *(
        "64.0%",
        "52.0% to 75.0%",
        "95% interval",
        "Not promoted",
        "Below the floor",
        "23 min 25 s",
        "reused",
        "3,984",
    ),
    *("6,100,000 trained on, 41,234 generated", "mlflow ui"),
)


def entry(value, n=64, low=None, high=None):
    return {
        "value": value,
        "n": n,
        "low": value if low is None else low,
        "high": value if high is None else high,
    }


def make_data(**changes):
    values = {
        "run_id": "20260131-142530-9f3a",
        "metrics": {
            "evaluate/refined/success_rate": entry(0.64, 64, 0.52, 0.75),
            "evaluate/cloned/success_rate": entry(0.33, 64, 0.23, 0.45),
            "fidelity/next_state_exact": entry(0.92, 960, 0.9, 0.93),
            "fidelity/next_state_exact/changed_1_2": entry(0.91, 470, 0.88, 0.94),
            "fidelity/policy_reward_recall": entry(0.0, 0, 0.0, 1.0),
            "synthetic_rl/zero_variance_groups": entry(31, 1),
            "sim_to_real/real_interactions": entry(3984, 1),
            "cost/tokens_trained": entry(6_100_000, 1),
            "cost/tokens_generated": entry(41_234, 1),
        },
        "stages": [
            {"name": "validate", "seconds": 3.2, "reused": True, "key": "abc" * 20},
            {"name": "synthetic_rl", "seconds": 1405, "reused": False},
        ],
        "series": {
            **{"synthetic_rl/success_rate": [0.2, 0.5, 0.9], "synthetic_rl/policy_entropy": [2.0, None, 1.0]},
            **{"empty": [], "gone/success_rate": [None]},
        },
        "decision": {
            "promoted": False,
            "reason": "Below the floor.",
            "conditions": [
                {"name": "threshold", "metric": "success_rate", "threshold": 0.2, **entry(0.1, 64, 0.0, 0.3)}
            ],
        },
        "notes": ["A note | with a pipe."],
        "examples": [{"task": f"put {SCRIPT} away", "confirmed": False, "steps": [STEP]}],
        "head": [("date", "31 January 2026"), ("commit", "ab" * 20)],
        "next_steps": ["mlflow ui"],
    }
    return ReportData(**{**values, **changes})


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    markdown, page = write_report(tmp_path, make_data())
    assert (markdown, page) == (tmp_path / "report.md", tmp_path / "report.html")
    return markdown.read_text(), page.read_text()


def test_both_formats_contain_every_section_and_number(texts):
    for text in texts:
        for words in (*SECTIONS, *FIGURES):
            assert words in text
        assert "not confirmed by the real engine" in text
        assert "31 January 2026" in text and "ab" * 20 in text
        assert "metrics.json" in text
        assert "git.diff" not in text
        assert "gone/success_rate" not in text, "a curve without any value is left out"


def test_the_summary_contains_each_condition_and_the_costs():
    text = summary(make_data())
    assert text.startswith("**Not promoted.** Below the floor.") and "6,100,000 trained on" in text
    assert (
        "| success rate reaches the floor (threshold) | success rate (success_rate) | 0.100 | 0.000 to "
        "0.300 | 64 | 0.200 | fail |" in text
    )


def test_policies_are_in_training_order(texts):
    assert texts[0].index("| cloned |") < texts[0].index("| refined |")


def test_unmeasured_values_and_counts_are_formatted(texts):
    assert "| reward recall, policy's steps (fidelity/policy_reward_recall) | not measured |" in texts[0]
    assert re.search(r"zero_variance_groups\) \| 31 \|", texts[0])


def test_text_of_a_dream_is_escaped(texts):
    markdown, page = texts
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Content-Security-Policy" in page
    outside_fences = re.sub(r"(`{3,})text\n.*?\n\1", "", markdown, flags=re.DOTALL)
    assert "<script" not in outside_fences
    assert "# no title" not in outside_fences
    assert "A note \\| with a pipe." in outside_fences


def test_the_page_is_well_formed_and_self_contained(texts):
    class Reader(HTMLParser):
        opened: list[str] = []
        links: list[str] = []

        def handle_starttag(self, tag, attrs):
            self.links += [value for key, value in attrs if key in ("src", "href")]
            if tag not in ("meta", "img"):
                self.opened.append(tag)

        def handle_endtag(self, tag):
            assert self.opened.pop() == tag

    reader = Reader()
    reader.feed(texts[1])
    assert reader.opened == []
    assert len(reader.links) == 4
    assert all(link.startswith("data:image/svg+xml;base64,") for link in reader.links)
    assert "url(" not in re.sub(r"base64,[^\"]*", "", texts[1])


def test_an_empty_and_an_incomplete_run_get_a_report(tmp_path):
    markdown, page = write_report(tmp_path, ReportData("r1"))
    assert "did not reach the evaluation" in markdown.read_text()
    assert "Learning" not in page.read_text()
    unmeasured = {"evaluate/refined/success_rate": {"value": None, "n": 0, "low": None, "high": None}}
    data = make_data(
        metrics=unmeasured,
        stages=[{"name": "validate"}],
        decision={"promoted": True},
        examples=[{}],
        series={"x": [float("nan")]},
    )
    assert "not measured" in write_report(tmp_path, data)[0].read_text()


def test_a_report_is_deterministic_and_replaced_atomically(tmp_path):
    first = [path.read_bytes() for path in write_report(tmp_path, make_data())]
    assert [path.read_bytes() for path in write_report(tmp_path, make_data())] == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "report.md"]


def test_an_unwritable_directory_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written.*the run itself is complete"):
        write_report(tmp_path / "file", make_data())


def test_curves_are_valid_svg_for_any_name_and_values():
    for svg in (
        curve_svg("a$b", [1.0, float("nan")]),
        curve_svg("c", [2.0], rate=True),
        curve_svg("d", [0.0] * 100),
    ):
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert not re.search(r'href="(?!#)', svg)


def test_two_points_are_not_connected():
    """A connecting line is one path without fill."""

    def line_count(values):
        return len(re.findall(r'style="fill: none; stroke: #7b61c9', curve_svg("synthetic_rl/x", values)))

    assert line_count([0.1, 0.9]) == 0 == line_count([0.1, float("nan"), 0.9])
    assert line_count([0.1, 0.4, 0.9]) == 1


def test_curves_are_grouped_and_titled_in_words(tmp_path):
    series = {"synthetic_rl/policy_entropy": [2.0, 1.5, 1.0], "sim_to_real/success_rate": [0.5, 0.75]}
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(series=series)))
    for words in (
        "<h3>RL in the dream</h3>",
        "<h3>RL in the real environment</h3>",
        "<dfn>policy entropy</dfn>",
        html.escape(TERMS["policy_entropy"][1]),
    ):
        assert words in page, words
    assert "sim_to_real/success_rate  0.5, 0.75" in markdown


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "fidelity/next_state_exact/determined/changed_1_2",
            "next state exact, where the history determines it, 1-2 facts changed",
        ),
        ("fidelity/next_state_exact/changed_3_plus", "next state exact, 3+ facts changed"),
        ("fidelity/rollout_agreement/dreamed", "dreamed successes confirmed, dreamed policy"),
        ("own/new_figure", "new figure"),
        ("success_rate", "success rate"),
        ("success_rate_change/cool", "gain over the champion, cool"),
    ],
)
def test_a_metric_has_a_title_in_words(name, title):
    assert title_of(name) == title


def test_spark_follows_the_values():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([float("nan")]) == ""
    assert len(sparkline(list(range(1000)))) == 40


def test_the_curriculum_is_summarised_and_drawn(tmp_path):
    def make_entry(refused, generated, **values):
        return {
            "refused": refused,
            "pool": 3,
            "difficulty": {"training": [1, 2, 0, 3, 4], "generated": generated},
            **values,
        }

    history = [
        make_entry({"not new": 20, "malformed": 4}, [0] * 5, proposed=32, accepted=8, played=0, solved=0),
        make_entry({"no such object": 32}, [1, 0, 2, 1, 0], proposed=32, accepted=0, played=4, solved=3),
    ]
    _, page = write_report(tmp_path, make_data(curriculum=history))
    text = page.read_text()
    assert (
        "Of 64 proposed task variations 8 were accepted. Reasons for refusal: no such object 32; not new 20; "
        "malformed 4." in text
    )
    assert "Generated tasks were played 4 times and solved by at least one rollout 3 times." in text
    ElementTree.fromstring(curriculum_svg(history))
    assert curriculum_svg(history) == curriculum_svg(history) != curriculum_svg(history[:1])
