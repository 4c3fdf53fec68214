"""Browser states as text and back, facts, contradictions and commands: pure functions, no browser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.environments.browser.actions import (
    Command,
    admissible_actions,
    find_obstacle,
    read_action,
    to_browsergym,
    well_formed,
)
from components.environments.browser.engine.accessibility_tree import Mark, extract_elements
from components.environments.browser.engine.elements import (
    ACTIONABLE_KINDS,
    EDITABLE,
    FIELDS,
    FLAGS,
    TEXT,
    Element,
    clean_text,
)
from components.environments.browser.states import (
    EMPTY,
    FAILURES,
    OVER,
    View,
    contradicts,
    make_view,
    read_state,
    state_facts,
)

FORM = """[16] textbox: Username = kenda (focused)
[18] select: Country = Chad {Aruba | Chad}
[20] checkbox: News (checked)
[22] button: Login (disabled)
text: Welcome back
3 more"""
LOGIN = View(
    (
        Element("textbox", "Username", "16", "kenda", (), ("focused",)),
        Element("select", "Country", "18", "Chad", ("Aruba", "Chad")),
        Element("checkbox", "News", "20", flags=("checked",)),
        Element("button", "Login", "22", flags=("disabled",)),
        Element(TEXT, "Welcome back"),
    ),
    more=3,
)


def test_a_state_is_parsed_as_it_was_written():
    assert read_state(FORM) == LOGIN and str(LOGIN) == FORM
    assert read_state(OVER).over and str(read_state(OVER)) == OVER
    assert str(View()) == EMPTY and read_state(EMPTY) == View()
    failed = make_view(LOGIN.elements, 3, failure="option", dialogs=["Sure?\nReally"], tab="2 of 2: Orders")
    assert str(failed).splitlines()[:3] == [
        "Failed: no such option.",
        "Dialog: Sure? Really",
        "Tab 2 of 2: Orders",
    ]
    assert read_state(str(failed)) == failed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A dragon.",
        "[16] dragon: x",
        "[] button: x",
        "16 button: x",
        "[1] button: a\n[1] link: b",
        "Failed: it rained.\n[1] button: a",
        "3 more",
        "\n",
    ],
)
def test_other_texts_are_unreadable(text):
    assert not read_state(text).readable
    assert state_facts(text) == {("unreadable", text)} and contradicts(
        ("unreadable", text), state_facts(FORM)
    )


NAMES = st.text(st.characters(codec="utf-8"), max_size=60).map(clean_text)


@st.composite
def lines(draw) -> Element:
    """An element as the reader makes them, with any name."""
    kind = draw(st.sampled_from(sorted(ACTIONABLE_KINDS)))
    name, value = draw(NAMES), draw(NAMES) if kind in FIELDS else ""
    options = tuple(draw(st.lists(NAMES.filter(bool), max_size=3))) if kind == "select" else ()
    flags = tuple(flag for flag in FLAGS if draw(st.booleans()))
    return Element(kind, name.replace(" = ", "=").rstrip(" =:"), "", value, options, flags)


@given(st.lists(lines(), min_size=1, max_size=6))
def test_every_state_reads_back_to_its_own_text(elements):
    view = View(
        tuple(
            Element(e.kind, e.name, str(n + 1), e.value, e.options, e.flags) for n, e in enumerate(elements)
        )
    )
    again = read_state(str(view))
    assert (
        again.readable
        and again.ids == view.ids
        and [e.kind for e in again.elements] == [e.kind for e in view.elements]
    )
    assert str(again) == str(view)


def test_facts_are_the_elements_and_what_they_hold():
    assert state_facts(FORM) == {
        *{("event", "page"), ("more", "3"), ("text", "Welcome back"), ("focused", "16")},
        *{
            ("element", "16", "textbox", "Username"),
            ("element", "18", "select", "Country"),
            ("element", "20", "checkbox", "News"),
        },
        *{("element", "22", "button", "Login"), ("value", "16", "kenda"), ("value", "18", "Chad")},
        *{
            ("option", "18", "Aruba"),
            ("option", "18", "Chad"),
            ("flag", "20", "checked"),
            ("flag", "22", "disabled"),
        },
    }
    assert state_facts(OVER) == {("event", "over")}
    assert ("event", "failed", "disabled") in state_facts("Failed: disabled.\n" + FORM)


@pytest.mark.parametrize(
    ("claim", "denied"),
    [
        (("element", "16", "textbox", "Username"), False),
        (("element", "16", "textbox", "Password"), True),
        (("element", "99", "button", "Help"), False),
        (("value", "16", "keli"), True),
        (("flag", "16", "checked"), True),
        (("event", "over"), True),
        (("text", "Hello"), False),
    ],
)
def test_a_state_denies_what_it_does_not_list(claim, denied):
    assert contradicts(claim, state_facts(FORM)) == denied
    assert contradicts(claim, state_facts(FORM.removesuffix("\n3 more"))) == (claim not in state_facts(FORM))


@pytest.mark.parametrize(
    ("action", "command", "call"),
    [
        ("click [13]", Command("click", "13"), "click('13')"),
        (
            'fill [a16] it\'s "x"\\ ü',
            Command("fill", "a16", 'it\'s "x"\\ ü'),
            "fill('a16', 'it\\'s \"x\"\\\\ ü')",
        ),
        ("select [18] Chad", Command("select", "18", "Chad"), "select_option('18', 'Chad')"),
        ("press [16] Control+a", Command("press", "16", "Control+a"), "press('16', 'Control+a')"),
        ("drag [1] to [2]", Command("drag", "1", "2"), "drag_and_drop('1', '2')"),
        ("scroll down", Command("scroll", "", "down"), "scroll(0, 300)"),
        ("tab 2", Command("tab", "", "2"), "tab_focus(1)"),
        ("close tab", Command("close tab"), "tab_close()"),
        ("goto http://x/", Command("goto", "", "http://x/"), "goto('http://x/')"),
        ("answer 42", Command("answer", "", "42"), "send_msg_to_user('42')"),
    ],
)
def test_commands_and_their_form_in_browsergym(action, command, call):
    assert well_formed(action) and read_action(action) == command and to_browsergym(action) == call


@pytest.mark.parametrize(
    "action",
    [
        "",
        "?",
        "click",
        "click 13",
        "click [13] now",
        "fill [13]",
        "fill [13] a\nb",
        "press [1] Enter now",
        "Click [1]",
        "tab 0",
        "tab 01",
    ]
    + ["x" * 2000],
)
def test_anything_else_is_malformed(action):
    assert not well_formed(action) and find_obstacle(action, LOGIN, web=False) == "malformed"


@pytest.mark.parametrize(
    ("action", "web", "why"),
    [
        ("click [16]", False, ""),
        ("click [99]", False, "missing"),
        ("drag [16] to [99]", False, "missing"),
        ("click [22]", False, "disabled"),
        ("click [18]", False, "kind"),
        ("fill [20] x", False, "kind"),
        ("select [18] Peru", False, "option"),
        ("select [18] Aruba", False, ""),
        ("back", False, "place"),
        ("back", True, ""),
        ("goto http://elsewhere/", True, "place"),
        ("goto file:///etc/passwd", True, "place"),
        ("goto http://shop:80/x", True, ""),
        ("goto http:///elsewhere/", True, "place"),
        ("goto http://[", True, "place"),
    ],
)
def test_obstacles_of_an_action(action, web, why):
    assert find_obstacle(action, LOGIN, web=web, sites=["shop:80", ""]) == why
    assert why == "" or why in FAILURES


def test_admissible_actions_can_all_be_carried_out():
    actions = admissible_actions(LOGIN, 'Enter "a b" and "c".')
    assert {
        "click [16]",
        "fill [16] a b",
        "fill [16] c",
        "clear [16]",
        "select [18] Aruba",
        "click [20]",
    } <= set(actions)
    assert not any("[22]" in action for action in actions)
    assert all(find_obstacle(action, LOGIN, web=False) == "" for action in actions)


def node(number, role, name="", bid="", children=(), **properties):
    """Return a node of an accessibility tree."""
    entry = {
        "nodeId": str(number),
        "role": {"value": role},
        "name": {"value": name},
        "childIds": [str(child) for child in children],
    }
    entry["properties"] = [{"name": key, "value": {"value": value}} for key, value in properties.items()]
    return entry | ({"browsergym_id": bid} if bid else {})


def test_text_beside_nameless_fields_becomes_their_name():
    nodes = [
        node(0, "RootWebArea", children=range(1, 5)),
        node(1, "StaticText", "Year:"),
        node(2, "textbox", bid="7"),
        node(3, "StaticText", "Genre"),
        node(4, "textbox", bid="8"),
    ]
    marked = {"7": Mark(True, True, ""), "8": Mark(True, True, "")}
    assert [str(element) for element in extract_elements(nodes, marked, "", 10)[0]] == [
        "[7] textbox: Year",
        "[8] textbox: Genre",
    ]
    behind = [node(0, "RootWebArea", children=(2, 1, 4, 3)), *nodes[1:]]
    assert [str(element) for element in extract_elements(behind, marked, "", 10)[0]] == [
        "[7] textbox: Year",
        "[8] textbox: Genre",
    ]


def test_elements_out_of_view_or_without_clicks_are_left_out():
    nodes = [
        node(0, "RootWebArea", children=(1, 2, 3)),
        node(1, "button", "Seen", "1"),
        node(2, "button", "Unseen", "2"),
        node(3, "generic", "", "3", (4,)),
        node(4, "StaticText", "words"),
    ]
    marked = {"1": Mark(True, True, ""), "2": Mark(True, False, ""), "3": Mark(False, True, "")}
    assert [str(element) for element in extract_elements(nodes, marked, "", 10)[0]] == [
        "[1] button: Seen",
        "text: words",
    ]
    clickable = marked | {"3": Mark(True, True, "")}
    assert [str(element) for element in extract_elements(nodes, clickable, "", 10)[0]] == [
        "[1] button: Seen",
        "[3] item: words",
    ]


def test_an_option_is_chosen_in_the_pages_own_words():
    """A state shortens and cleans options. Of many those stay that share a word with the instruction."""
    long = "Cash on delivery (only for orders below a hundred)"
    labels = ["", "{a}|b", long, *(f"kind {number}" for number in range(6)), "way 7"]
    nodes = [
        node(0, "RootWebArea", children=(1,)),
        node(1, "combobox", "Pay", "5", range(2, 2 + len(labels))),
        *(node(number, "option", label) for number, label in enumerate(labels, start=2)),
    ]
    elements = extract_elements(nodes, {"5": Mark(True, True, "")}, "pay by way 7", 10)[0]
    assert str(elements[0]).startswith(
        "[5] select: Pay { | (a)/b | Cash on delivery (only for orders below… | kind 0"
    )
    assert [str(element) for element in read_state(str(elements[0])).elements] == [str(elements[0])]
    view, calls = make_view(elements, 0), {}
    for action in admissible_actions(view, ""):
        assert read_action(action) and find_obstacle(action, view, web=False) == ""
        calls[action.split("] ")[1]] = to_browsergym(action, view)
    assert (
        calls["(a)/b"] == "select_option('5', '{a}|b')"
        and long in calls["Cash on delivery (only for orders below…"]
    )
    assert calls["way 7"] == "select_option('5', 'way 7')" and len(calls) == 7


@pytest.mark.parametrize(
    "words", ["Save (disabled)", "x (checked, focused)", "(selected)", "a (checked) (checked)"]
)
def test_page_texts_are_not_read_as_flags(words):
    for element in (
        Element("button", clean_text(words), "3"),
        Element("textbox", "Name", "4", clean_text(words)),
    ):
        assert read_state(str(element)).elements == (element,) and not element.flags


def test_a_very_deep_tree_is_read():
    deep = [node(number, "generic", children=(number + 1,)) for number in range(5000)]
    assert extract_elements(deep, {}, "", 10) == ([], 0) and extract_elements([], {}, "", 10) == ([], 0)


def test_kinds_that_can_be_filled_hold_values():
    assert EDITABLE < FIELDS < ACTIONABLE_KINDS
