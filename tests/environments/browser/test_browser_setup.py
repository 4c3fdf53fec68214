"""Messages where Chromium, packages or sites are missing, and WebArena's tasks on local test sites."""

from __future__ import annotations

import http.server
import importlib.util
import json
import random
import threading
from contextlib import closing
from pathlib import Path

import pytest
from real_browser import opened, settings

from components.config import load_config
from components.environments import make_adapter
from components.environments.browser.engine import web_sites
from components.environments.browser.engine.chromium import SWITCHES, find_chromium, read_version
from components.environments.browser.engine.gym_tasks import make_task
from components.environments.browser.engine.library_patches import without_nltk_downloads
from components.environments.browser.engine.messages import TabSettings
from components.environments.browser.engine.pool import Browsers
from components.environments.browser.engine.tab import EpisodeTab
from components.environments.browser.engine.web_sites import SITES, find_missing_requirements, site_hosts
from components.environments.browser.states import OVER, read_state
from components.environments.browser.task_lists import _entries, _held_out, template, web_candidates
from components.errors import EnvironmentFailure
from flows.checks import doctor

WITHOUT = next(
    (name for name in (*web_sites.PACKAGES, "text_generation") if not web_sites._installed(name)), ""
)
needs_webarena = pytest.mark.skipif(
    bool(WITHOUT), reason=f"WebArena's packages are not installed ({WITHOUT}): {web_sites.INSTALL}"
)
ZIP_CODE = 70
"""The WebArena task on the map alone whose answer is compared word for word: no judge, no login."""


def rung(*overrides):
    return doctor.run_check(
        doctor.check_browser, load_config(None, ["environment.name=browser", *overrides]), None
    )


def test_a_missing_chromium_says_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match=r"no Chromium.*on the PATH.*apt-get install -y chromium"):
        find_chromium()
    with pytest.raises(EnvironmentFailure, match=r"executable=nowhere is no program"):
        make_adapter(
            load_config(
                None, ["environment.name=browser", "environment.browser.executable=nowhere"]
            ).environment
        ).open()
    check = rung()
    assert check.state == "wrong" and "no Chromium" in check.found and "apt-get install" in check.next_step


def test_a_program_that_is_no_browser_is_refused(tmp_path):
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(EnvironmentFailure, match="does not start"):
        read_version(str(fake))
    browsers = Browsers(settings(executable=str(fake), page_seconds=5.0))
    try:
        assert isinstance(browsers.load({0: {"task": "miniwob.click-test", "seed": 0}})[0], str)
    finally:
        browsers.close()


def test_doctor_checks_the_browser():
    settings()
    assert doctor.check_browser(load_config(), None).found == "Not needed with environment.name=alfworld."
    assert doctor.check_compilers(load_config(None, ["environment.name=browser"]), None).state == "ok"
    check = rung()
    assert check.state == "ok" and "Chrom" in check.found
    assert list(doctor.SETUP_CHECKS).index("browser") < list(doctor.SETUP_CHECKS).index("game engine")


def test_missing_packages_and_variables_are_listed(monkeypatch):
    settings()
    for site in SITES:
        monkeypatch.delenv(f"WA_{site}", raising=False)
    check = rung("environment.browser.benchmark=webarenalite")
    assert check.state == "wrong"
    assert "pip install" in check.next_step if WITHOUT else "WA_SHOPPING, WA_SHOPPING_ADMIN" in check.found
    with pytest.raises(EnvironmentFailure, match="webarena cannot be played: not"):
        make_adapter(
            load_config(
                None, ["environment.name=browser", "environment.browser.benchmark=webarena"]
            ).environment
        )


@pytest.fixture
def sites(monkeypatch):
    """All of WebArena's sites at one local address: a page with a search box and a link.

    The real sites are not available in tests.
    """

    class Map(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"<title>Map</title><input aria-label=Search><button>Go</button><a href=/about>About</a>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Map) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for site in SITES:
            monkeypatch.setenv(f"WA_{site}", address)
        yield address
        server.shutdown()


def test_a_left_out_or_invalid_site_has_no_host(monkeypatch):
    for site in SITES:
        monkeypatch.setenv(f"WA_{site}", "http://shop.example:7770/")
    for site, address in zip(SITES, ("todo", "shop.example:7770", "http://["), strict=False):
        monkeypatch.setenv(f"WA_{site}", address)
    assert set(site_hosts()) == {"shop.example:7770"} and len(site_hosts()) == len(SITES) - 3
    monkeypatch.setattr(web_sites, "_installed", lambda name: True)
    (requirement,) = find_missing_requirements(ask=False)
    assert (
        f"no address of a site: WA_{SITES[1]}, WA_{SITES[2]}" in requirement.found
        and requirement.stops
        and "todo to leave it out" in requirement.next_step
    )


@pytest.fixture
def tab():
    """A tab in this process, so that a test can do what no action can."""
    from browsergym.core.constants import BROWSERGYM_ID_ATTRIBUTE
    from playwright.sync_api import sync_playwright

    limits = settings()
    with sync_playwright() as playwright:
        playwright.selectors.set_test_id_attribute(BROWSERGYM_ID_ATTRIBUTE)
        with closing(
            playwright.chromium.launch(executable_path=limits.executable, args=list(SWITCHES))
        ) as browser:
            yield EpisodeTab(
                browser, TabSettings(Path(), limits.elements, limits.page_seconds, limits.action_seconds)
            )


def test_a_miniwob_tab_has_no_network(tab, sites):
    answers = []
    knock = "address => fetch(address, {mode: 'no-cors'}).then(() => 'reached', () => 'refused')"
    for spec in ({"task": "miniwob.click-test-2", "seed": 4}, {"task": "openended", "url": sites}):
        tab.load(spec)
        answers.append(tab._page.evaluate(knock, sites))
    assert answers == ["refused", "reached"]


def test_a_popup_ends_a_miniwob_episode_as_in_browsergym(tab):
    button = read_state(tab.load({"task": "miniwob.click-button", "seed": 0}).state).ids[0]
    tab._page.evaluate(
        "document.addEventListener('mousedown', event => { event.stopPropagation(); "
        "window.open('about:blank'); }, true)"
    )
    assert (observation := tab.step(f"click [{button}]")).done and (
        observation.state,
        observation.reward,
    ) == (OVER, 0.0)


def test_a_closed_tab_leaves_no_session_and_opens_again(tab):
    first = tab.load({"task": "miniwob.click-button", "seed": 0})
    tab.step(f"click [{read_state(first.state).ids[0]}]")
    teller = tab._target_session
    tab.close()
    with pytest.raises(Exception, match="detached|closed"):
        teller.send("Target.getTargets")
    assert tab.load({"task": "miniwob.click-button", "seed": 0}) == first


@needs_webarena
def test_silent_sites_and_missing_evaluator_needs_are_named(monkeypatch, sites):
    assert not [requirement for requirement in find_missing_requirements() if requirement.stops]
    monkeypatch.setenv("WA_REDDIT", "http://127.0.0.1:9")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    missing = find_missing_requirements()
    assert "no answer from WA_REDDIT (http://127.0.0.1:9)" in missing[0].found and missing[0].stops
    assert any("OPENAI_API_KEY" in requirement.found and not requirement.stops for requirement in missing)
    assert rung("environment.browser.benchmark=webarena").state == "wrong"


@needs_webarena
@pytest.mark.parametrize(("answer", "reward"), [("15213", 1.0), ("15214", 0.0)])
def test_a_webarena_task_is_judged_by_its_own_evaluator(sites, answer, reward):
    browsers = Browsers(settings())
    try:
        observation = opened(browsers, {"task": f"webarena.{ZIP_CODE}", "seed": 0})
        assert observation.goal == "What is the zip code of Carnegie Mellon University?"
        assert observation.state.startswith("Tab 1 of 1: Map\n") and "link: About" in observation.state
        link = next(line.split()[0] for line in observation.state.splitlines() if "About" in line)
        assert not browsers.step({0: f"click {link}"})[0].done
        assert browsers.step({0: f"goto {sites}/x"})[0].state.startswith("Tab 1 of 1: Map")
        assert browsers.step({0: "goto http://example.com/"})[0].state.startswith(
            "Failed: not possible here."
        )
        last = browsers.step({0: f"answer {answer}"})[0]
        assert (last.done, last.reward, last.state) == (True, reward, "Episode over.")
    finally:
        browsers.close()


@needs_webarena
def test_webarenas_tasks_are_split_by_template(sites):
    config = load_config(
        None, ["environment.name=browser", "environment.browser.benchmark=webarenalite"]
    ).environment.browser
    held_out_count = sum(template(entry) in _held_out(config) for entry in _entries("webarenalite"))
    counts = {"train": 165 - held_out_count, "test": held_out_count}
    train, test = (web_candidates(config, split, random.Random(0), count) for split, count in counts.items())
    assert len(_entries("webarenalite")) == 165 and len(_entries("webarena")) == 812
    assert (
        train
        and {one.family for one in test} == _held_out(config)
        and not {one.family for one in train} & _held_out(config)
    )
    assert len({one.name for one in (*train, *test)}) == 165
    with pytest.raises(
        EnvironmentFailure,
        match=f"has {held_out_count} tasks of the split test.*at least {held_out_count + 1}",
    ):
        web_candidates(config, "test", random.Random(0), held_out_count + 1)


@needs_webarena
def test_every_evaluator_loads(sites, tmp_path):
    assert importlib.util.find_spec("webarena") and make_task({"task": "webarenalite.4"}).task_configs
    with without_nltk_downloads():
        from webarena.evaluation_harness.evaluators import evaluator_router

        file = tmp_path / "task.json"
        for entry in _entries("webarena"):
            file.write_text(json.dumps(entry))
            assert evaluator_router(str(file)).evaluators
