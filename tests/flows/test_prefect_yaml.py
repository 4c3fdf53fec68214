"""The scheduled deployment: what Prefect itself reads from prefect.yaml, and that its flow can be loaded."""

import asyncio
import inspect
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from flows.settings import DEFAULTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deployment():
    """The one deployment, checked by Prefect's own model of the file."""
    from prefect.cli.deploy._models import PrefectYamlModel

    model = PrefectYamlModel.model_validate(yaml.safe_load((ROOT / "prefect.yaml").read_text()))
    assert model.pull is None, "an explicit pull step would name a machine's path"
    (found,) = model.deployments
    return found.model_dump(exclude_unset=True, mode="json")


def test_nightly_at_three_utc_and_paused(deployment):
    from prefect.server.schemas.schedules import CronSchedule

    (schedule,) = deployment["schedules"]
    assert schedule["active"] is False
    cron = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
    assert cron.timezone == "UTC"
    nights = asyncio.run(cron.get_dates(2, start=datetime(2026, 3, 28, 12, tzinfo=UTC)))
    assert nights == [datetime(2026, 3, day, 3, tzinfo=UTC) for day in (29, 30)]


def test_runs_never_overlap(deployment):
    assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert deployment["work_pool"]["name"] == "dreamgym"


def test_the_flow_loads_and_takes_the_parameters(deployment, monkeypatch, tmp_path):
    from prefect.flows import Flow, load_flow_from_entrypoint

    monkeypatch.chdir(ROOT)
    for name, value in {**DEFAULTS, "PREFECT_HOME": str(tmp_path)}.items():  # what its import would set for good
        monkeypatch.setenv(name, value)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert isinstance(flow, Flow)
    inspect.signature(flow.fn).bind(**deployment["parameters"])
    assert (ROOT / deployment["parameters"]["config_file"]).is_file()
