"""The report: complete, self-contained, escaped, and whole whatever a run lacks."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from components.errors import DataError
from components.evaluation.report.charts import curve_svg, spark
from components.evaluation.report.curriculum_figure import curriculum_svg
from components.evaluation.report.metric_titles import TERMS, title_of
from components.evaluation.report.run_report import ReportData, summary, write_report

EVIL = "<script>alert(1)</script>"

STEP = {"action": "go", "state": f"You see {EVIL}.\n```\n# no title"}
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
        "examples": [{"task": f"put {EVIL} away", "confirmed": False, "steps": [STEP]}],
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


def test_both_hold_every_section_and_number(texts):
    for text in texts:
        for words in (*SECTIONS, *FIGURES):
            assert words in text
        assert "not confirmed by the real engine" in text
        assert "31 January 2026" in text and "ab" * 20 in text
        assert "metrics.json" in text
        assert "git.diff" not in text
        assert "gone/success_rate" not in text, "a curve without a single value is left out"


def test_the_summary_has_each_condition_and_the_costs():
    told = summary(make_data())
    assert told.startswith("**Not promoted.** Below the floor.") and "6,100,000 trained on" in told
    assert (
        "| success rate reaches the floor (threshold) | success rate (success_rate) | 0.100 | 0.000 to "
        "0.300 | 64 | 0.200 | fail |" in told
    )


def step(action, state, real=None, reward=0.0, real_reward=0.0, **more):
    played = (
        {}
        if real is None
        else {"real": real, "real_reward": real_reward, "same_facts": real == state, "facts": {}}
    )
    return {"action": action, "state": state, "reward": reward, **played, **more}


def test_a_dream_stands_beside_reality_and_what_differs_is_marked(tmp_path):
    facts = {"denied": [f"in mug 1 {EVIL}"]}
    differing = step("open fridge 1", f"In it mug 1 {EVIL}.", "In it cup 2.", facts=facts)
    steps = [step("look", "A room.", "A room."), differing, step("wait", "Nothing.")]
    examples = [
        {"task": "cool it", "start": "A hall.", "confirmed": False, "steps": steps, "parts_at": 1},
        {"task": "heat it", "confirmed": True, "steps": steps[:1], "parts_at": None},
    ]
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(examples=examples)))
    assert (
        page.count("A room.") == 2 == page.count(">the same</span>") and page.count("not played</span>") == 1
    )
    assert page.count(">reward 0</span>") == 7 and "A hall." in page
    assert (
        "In it <mark>cup 2.</mark>" in page
        and "denied by reality: in mug 1 &lt;script&gt;" in page
        and "<script" not in page
    )
    assert page.count('<details class="episode" open>') == 1 == page.count('<details class="episode">')
    assert (
        page.count("dream and reality part here")
        == 1
        == page.count('class="turn parted"')
        == page.count("part at step 2")
    )
    assert (
        "dream:   In it mug 1" in markdown
        and "reality: In it cup 2. [reward 0]" in markdown
        and "denied by reality: in mug 1" in markdown
    )
    assert "!! Dream and reality part at step 2, 'open fridge 1': denied by reality" in markdown


def test_a_success_granted_wrongly_is_seen_although_every_state_is_the_same(tmp_path):
    """Heat asked, cooled done: the dream's last state is the real one, its reward is not."""
    wrong = {
        "why": "mug want mug: yes, cool want hot: yes. done",
        "real_why": "mug want mug: yes, cool want hot: no. not done",
    }
    steps = [
        step("cool mug 1", "Cooled.", "Cooled."),
        step("put mug 1 in desk 1", "Put.", "Put.", reward=1.0, **wrong),
    ]
    example = {"task": "put a hot mug in desk", "confirmed": False, "steps": steps, "parts_at": 1}
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(examples=[example])))
    words = (
        "Dream and reality part at step 2, 'put mug 1 in desk 1': the dream gives reward 1, the real engine 0"
    )
    for text in (markdown, html.unescape(page)):
        assert (
            words in text
            and "the dream concludes 'cool want hot: yes', the real state 'cool want hot: no'" in text
        )
        assert "success granted wrongly" in text
    assert (
        '<span class="reward differs">reward 1</span>' in page
        and '<span class="reward differs">reward 0</span>' in page
    )
    assert "cool want hot: <mark>no. not</mark> done" in page


def test_a_dream_that_the_real_engine_ended_earlier_parts_where_it_ended(tmp_path):
    example = {"task": "x", "confirmed": False, "steps": [step("a", "s", "s"), step("b", "t")], "parts_at": 1}
    assert (
        "part at step 2: the real episode is over"
        in write_report(tmp_path, make_data(examples=[example]))[1].read_text()
    )


def test_a_check_without_dreamed_successes_says_so_and_a_run_without_check_says_nothing(tmp_path):
    assert (
        "No dreamed episode of the last check ended in success"
        in write_report(tmp_path, make_data(examples=[]))[1].read_text()
    )
    assert "Dreamed episodes" not in write_report(tmp_path, make_data(examples=None))[1].read_text()


def test_policies_stand_in_the_order_of_training(texts):
    assert texts[0].index("| cloned |") < texts[0].index("| refined |")


def test_what_was_not_measured_is_called_so_and_counts_are_counts(texts):
    assert "| reward recall, policy's steps (fidelity/policy_reward_recall) | not measured |" in texts[0]
    assert re.search(r"zero_variance_groups\) \| 31 \|", texts[0])


def test_text_of_a_dream_is_shown_not_run(texts):
    markdown, page = texts
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Content-Security-Policy" in page
    outside_fences = re.sub(r"(`{3,})text\n.*?\n\1", "", markdown, flags=re.DOTALL)
    assert "<script" not in outside_fences
    assert "# no title" not in outside_fences
    assert "A note \\| with a pipe." in outside_fences


def test_the_page_is_well_formed_and_refers_to_nothing_outside(texts):
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


def test_an_empty_run_and_a_partial_one_still_get_a_report(tmp_path):
    markdown, page = write_report(tmp_path, ReportData("r1"))
    assert "has not come to the evaluation" in markdown.read_text()
    assert "Learning" not in page.read_text()
    odd = {"evaluate/refined/success_rate": {"value": None, "n": 0, "low": None, "high": None}}
    data = make_data(
        metrics=odd,
        stages=[{"name": "validate"}],
        decision={"promoted": True},
        examples=[{}],
        series={"x": [float("nan")]},
    )
    assert "not measured" in write_report(tmp_path, data)[0].read_text()


def test_a_report_is_the_same_every_time_and_replaced_in_one_step(tmp_path):
    first = [path.read_bytes() for path in write_report(tmp_path, make_data())]
    assert [path.read_bytes() for path in write_report(tmp_path, make_data())] == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "report.md"]


def test_a_place_that_cannot_be_written_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written.*the run itself is complete"):
        write_report(tmp_path / "file", make_data())


def test_pictures_are_valid_svg_even_with_odd_names():
    for svg in (
        curve_svg("a$b", [1.0, float("nan")]),
        curve_svg("c", [2.0], rate=True),
        curve_svg("d", [0.0] * 100),
    ):
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert not re.search(r'href="(?!#)', svg)


def test_two_points_are_no_line():
    """Matplotlib draws a line as one path with as many parts as points: two points have none, three have
    one.
    """

    def lines(values):
        return len(re.findall(r'style="fill: none; stroke: #7b61c9', curve_svg("synthetic_rl/x", values)))

    assert lines([0.1, 0.9]) == 0 == lines([0.1, float("nan"), 0.9]) and lines([0.1, 0.4, 0.9]) == 1


def test_curves_are_grouped_and_named_in_words(tmp_path):
    series = {"synthetic_rl/policy_entropy": [2.0, 1.5, 1.0], "sim_to_real/success_rate": [0.5, 0.75]}
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(series=series)))
    for words in (
        "<h3>RL in the dream</h3>",
        "<h3>RL in the real environment</h3>",
        "<dfn>policy entropy</dfn>",
        TERMS["policy_entropy"][1],
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
    ],
)
def test_a_metric_has_a_title_in_words(name, title):
    assert title_of(name) == title


def test_spark_follows_the_values():
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert spark([1.0, 1.0]) == "▁▁"
    assert spark([float("nan")]) == ""
    assert len(spark(list(range(1000)))) == 40


def test_the_curriculum_is_told_and_drawn(tmp_path):
    def lived(refused, generated, **values):
        return {
            "refused": refused,
            "pool": 3,
            "difficulty": {"training": [1, 2, 0, 3, 4], "generated": generated},
            **values,
        }

    life = [
        lived({"not new": 20, "malformed": 4}, [0] * 5, proposed=32, accepted=8, played=0, solved=0),
        lived({"no such object": 32}, [1, 0, 2, 1, 0], proposed=32, accepted=0, played=4, solved=3),
    ]
    _, page = write_report(tmp_path, make_data(curriculum=life))
    text = page.read_text()
    assert (
        "Of 64 proposed variations 8 were accepted (not: no such object 32; not new 20; malformed 4)." in text
    )
    assert "Generated tasks were played 4 times, and 3 times won at least once." in text
    ElementTree.fromstring(curriculum_svg(life))
    assert curriculum_svg(life) == curriculum_svg(life) != curriculum_svg(life[:1])
