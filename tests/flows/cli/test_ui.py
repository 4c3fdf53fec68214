"""`dreamgym ui`: both pages of a finished run, on unusual ports, in a real Chromium; Ctrl-C stops both."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from urllib.request import Request, urlopen

import pytest
from ports import free_port
from small_job import command_of, environment_of

from components.config import TrackingConfig
from components.environments.browser.engine.chromium import NAMES, SWITCHES
from flows.deployment.services import mlflow_service

CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here (apt-get install chromium)"
)


def _heed_interrupts():
    """Handle Ctrl-C as in a terminal: processes that a script starts in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def addresses(finished):
    """Addresses of MLflow and Prefect, of `dreamgym ui` in the clone of a finished run."""
    ports = {"MLflow": free_port(), "Prefect": free_port()}
    options = [f"--{name.lower()}-port={port}" for name, port in ports.items()]
    command, environment = command_of("ui", *options), environment_of(finished.clone)
    settings = {
        "stdout": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
        "preexec_fn": _heed_interrupts,
    }
    with subprocess.Popen(command, cwd=finished.clone, env=environment, **settings) as shown:
        said: list[str] = []
        while not any(line.startswith("Prefect: ") for line in said):
            line = shown.stdout.readline()
            assert line, f"it ended: {said}"
            said.append(line)
        runs_page = "".join(said).split("compare runs: ")[1].split()[0]
        yield {"runs": runs_page} | {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        shown.send_signal(signal.SIGINT)
        try:
            assert shown.wait(60) == 0
        finally:
            shown.terminate()
    for port in ports.values():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)), "nothing listens there any more"


@pytest.fixture
def page():
    """A page of a Chromium that is closed at the end of the test."""
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        yield browser.new_page(viewport={"width": 1500, "height": 900})
        browser.close()


def read(page, address, *wanted, seconds=60.0):
    """Wait until a page contains all given words, and return its text."""
    page.goto(address)
    deadline = time.monotonic() + seconds
    while True:
        words = page.inner_text("body")
        if all(word in words for word in wanted):
            return words
        assert time.monotonic() < deadline, f"{address} does not show {wanted} but: {words}"
        page.wait_for_timeout(500)


@needs_chromium
def test_both_show_the_run_by_the_same_name(finished, addresses, page):
    first = min(
        path for path in (finished.clone / "runs").glob("*/manifest.json") if path.parent.name != "latest"
    )
    manifest = json.loads(first.read_text())  # later runs there, of other tests, may have told another server
    name = f"retrain {manifest['run_id'][-4:]}, seed 0"
    read(page, addresses["runs"], name)
    words = read(page, f"{addresses['Prefect']}/runs/flow-run/{manifest['prefect_flow_run_id']}", name)
    assert "Can't connect" not in words


@needs_chromium
def test_the_report_in_prefect_leads_to_the_page_in_mlflow(addresses, page):
    wanted = {"artifacts": {"key": {"any_": ["report"]}}}
    request = Request(
        f"{addresses['Prefect']}/api/artifacts/filter",
        json.dumps(wanted).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request) as answer:
        report = json.load(answer)[0]["data"]
    link = re.search(r"\]\((http://127\.0\.0\.1:5000/[^)]*)\)", report).group(1)
    page.goto(link.replace("http://127.0.0.1:5000", addresses["MLflow"]))
    page.frame_locator("iframe").get_by_text("Success on held-out real games").first.wait_for(timeout=60_000)


def test_before_any_run_the_store_has_its_tables_before_the_server_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow_service(TrackingConfig(), tmp_path, 5000)
    with sqlite3.connect(tmp_path / "mlflow" / "mlflow.db") as store:
        assert store.execute("SELECT version_num FROM alembic_version").fetchone()
        assert store.execute("SELECT count(*) FROM runs").fetchone() == (0,)
