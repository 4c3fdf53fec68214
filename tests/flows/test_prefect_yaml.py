"""The scheduled deployments: what Prefect itself reads from prefect.yaml, that their flows can be loaded, and what is tried again."""

import asyncio
import inspect
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from components.errors import DataError, ServiceUnreachable, TrackingError
from flows.settings import DEFAULTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deployments():
    """Name -> deployment, checked by Prefect's own model of the file."""
    from prefect.cli.deploy._models import PrefectYamlModel

    model = PrefectYamlModel.model_validate(yaml.safe_load((ROOT / "prefect.yaml").read_text()))
    assert model.pull is None, "an explicit pull step would name a machine's path"
    return {found.name: found.model_dump(exclude_unset=True, mode="json") for found in model.deployments}


def test_nightly_at_three_utc_and_all_off(deployments):
    from prefect.server.schemas.schedules import CronSchedule

    assert not any(schedule["active"] for deployment in deployments.values() for schedule in deployment["schedules"])
    (schedule,) = deployments["retrain"]["schedules"]
    cron = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
    assert cron.timezone == "UTC"
    nights = asyncio.run(cron.get_dates(2, start=datetime(2026, 3, 28, 12, tzinfo=UTC)))
    assert nights == [datetime(2026, 3, day, 3, tzinfo=UTC) for day in (29, 30)]


def test_the_scheduled_retraining_draws_other_validation_games_each_week(deployments):
    from components.config import load_config
    from flows.validation_games import with_draw

    given = deployments["retrain"]["parameters"]
    config = load_config(ROOT / given["config_file"], given["overrides"])
    draws = [with_draw(config, date(2026, 12, day)).promotion.draw for day in (28, 31)] + [
        with_draw(config, date(2027, 1, day)).promotion.draw for day in (3, 4)
    ]
    assert draws == [202653, 202653, 202653, 202701], "ISO weeks begin on Mondays, across years"


@pytest.fixture
def set_up(monkeypatch, tmp_path):
    """What an import of the flows would set for good."""
    monkeypatch.chdir(ROOT)
    for name, value in {**DEFAULTS, "PREFECT_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", ["retrain", "study", "watch-data"])
def test_runs_never_overlap(deployments, name):
    assert deployments[name]["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert deployments[name]["work_pool"]["name"] == "dreamgym" and deployments[name]["tags"] == ["dreamgym"]


@pytest.mark.parametrize("name", ["retrain", "study", "watch-data"])
def test_the_flow_loads_and_takes_the_parameters(deployments, set_up, name):
    from prefect.flows import Flow, load_flow_from_entrypoint

    flow, given = load_flow_from_entrypoint(deployments[name]["entrypoint"]), deployments[name].get("parameters", {})
    assert isinstance(flow, Flow)
    inspect.signature(flow.fn).bind(**given)
    assert (ROOT / given.get("config_file", "configs/quick.yaml")).is_file()


def test_only_a_silent_server_is_tried_again(set_up):
    from prefect.states import Failed

    from flows.deployments import _data_in_place, _retrained, _server_is_silent

    for error, again in ((ServiceUnreachable("x"), True), (TrackingError("x"), False), (DataError("x"), False), (ValueError("x"), False)):
        assert _server_is_silent(_retrained, None, Failed(data=error)) is again
    for tried in (_retrained, _data_in_place):
        assert tried.retries == 3 and tried.retry_delay_seconds == [30, 60, 120] and tried.retry_condition_fn is _server_is_silent
