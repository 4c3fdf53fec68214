"""Dreamed episodes in the report: both states and rewards per step, and where the dream diverges."""

import html

from test_report import SCRIPT, make_data

from components.evaluation.report.run_report import write_report


def step(action, state, real=None, reward=0.0, real_reward=0.0, **more):
    real_values = (
        {}
        if real is None
        else {"real": real, "real_reward": real_reward, "same_facts": real == state, "facts": {}}
    )
    return {"action": action, "state": state, "reward": reward, **real_values, **more}


def test_dreamed_and_real_states_are_side_by_side_with_differences_marked(tmp_path):
    facts = {"denied": [f"in mug 1 {SCRIPT}"]}
    differing = step("open fridge 1", f"In it mug 1 {SCRIPT}.", "In it cup 2.", facts=facts)
    steps = [step("look", "A room.", "A room."), differing, step("wait", "Nothing.")]
    examples = [
        {"task": "cool it", "start": "A hall.", "confirmed": False, "steps": steps, "parts_at": 1},
        {"task": "heat it", "confirmed": True, "steps": steps[:1], "parts_at": None},
    ]
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(examples=examples)))
    assert (
        page.count("A room.") == 2 == page.count(">same text</span>") and page.count("not played</span>") == 1
    )
    assert page.count(">reward 0</span>") == 7 and "A hall." in page
    assert (
        "In it <mark>cup 2.</mark>" in page
        and "contradicted by the real state: in mug 1 &lt;script&gt;" in page
        and "<script" not in page
    )
    assert page.count('<details class="episode" open>') == 1 == page.count('<details class="episode">')
    assert (
        page.count("the dream diverges from reality here")
        == 1
        == page.count('class="turn diverged"')
        == page.count("diverges from reality at step 2")
    )
    assert (
        "dream:   In it mug 1" in markdown
        and "reality: In it cup 2. [reward 0]" in markdown
        and "contradicted by the real state: in mug 1" in markdown
    )
    assert "!! The dream diverges from reality at step 2, 'open fridge 1': contradicted by" in markdown


def test_a_false_success_is_shown_even_if_all_states_are_the_same(tmp_path):
    """The task asks for a hot mug and the agent cools it: the last state is right, its reward is wrong."""
    reasonings = {
        "why": "mug want mug: yes, cool want hot: yes. done",
        "real_why": "mug want mug: yes, cool want hot: no. not done",
    }
    steps = [
        step("cool mug 1", "Cooled.", "Cooled."),
        step("put mug 1 in desk 1", "Put.", "Put.", reward=1.0, **reasonings),
    ]
    example = {"task": "put a hot mug in desk", "confirmed": False, "steps": steps, "parts_at": 1}
    markdown, page = (path.read_text() for path in write_report(tmp_path, make_data(examples=[example])))
    words = (
        "The dream diverges from reality at step 2, 'put mug 1 in desk 1': the dream gives reward 1, "
        "the real engine 0"
    )
    for text in (markdown, html.unescape(page)):
        assert (
            words in text
            and "the dream concludes 'cool want hot: yes', the real state gives 'cool want hot: no'" in text
        )
        assert "false success" in text
    assert (
        '<span class="reward differs">reward 1</span>' in page
        and '<span class="reward differs">reward 0</span>' in page
    )
    assert "cool want hot: <mark>no. not</mark> done" in page


def test_a_dream_diverges_where_the_real_episode_ended(tmp_path):
    example = {"task": "x", "confirmed": False, "steps": [step("a", "s", "s"), step("b", "t")], "parts_at": 1}
    assert (
        "diverges from reality at step 2: the real episode had already ended"
        in write_report(tmp_path, make_data(examples=[example]))[1].read_text()
    )


def test_a_check_without_dreamed_success_is_reported_and_a_run_without_check_is_not(tmp_path):
    assert (
        "No dreamed episode of the last check ended in success"
        in write_report(tmp_path, make_data(examples=[]))[1].read_text()
    )
    assert "Dreamed episodes" not in write_report(tmp_path, make_data(examples=None))[1].read_text()
