"""The scheduled deployments: what Prefect reads from prefect.yaml, that flows load, and what is retried."""

import asyncio
import inspect
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from components.errors import DataError, ServiceUnreachable, TrackingError
from flows.deployment.automations import SILENT_AFTER
from flows.settings import DEFAULTS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def deployments():
    """Name -> deployment, checked by Prefect's own model of the file."""
    from prefect.cli.deploy._models import PrefectYamlModel

    model = PrefectYamlModel.model_validate(yaml.safe_load((ROOT / "prefect.yaml").read_text()))
    assert model.pull is None, "an explicit pull step would name a machine's path"
    return {found.name: found.model_dump(exclude_unset=True, mode="json") for found in model.deployments}


def test_nightly_at_three_utc_and_all_off(deployments):
    from prefect.server.schemas.schedules import CronSchedule

    assert not any(
        schedule["active"] for deployment in deployments.values() for schedule in deployment["schedules"]
    )
    (schedule,) = deployments["retrain"]["schedules"]
    cron = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
    assert cron.timezone == "UTC"
    nights = asyncio.run(cron.get_dates(2, start=datetime(2026, 3, 28, 12, tzinfo=UTC)))
    assert nights == [datetime(2026, 3, day, 3, tzinfo=UTC) for day in (29, 30)]


def test_the_scheduled_retraining_draws_other_validation_games_each_week(deployments):
    from components.config import load_config
    from flows.run.games.validation_games import with_validation_draw

    given = deployments["retrain"]["parameters"]
    config = load_config(ROOT / given["config_file"], given["overrides"])
    draws = [with_validation_draw(config, date(2026, 12, day)).promotion.draw for day in (28, 31)] + [
        with_validation_draw(config, date(2027, 1, day)).promotion.draw for day in (3, 4)
    ]
    assert draws == [202653, 202653, 202653, 202701], "ISO weeks begin on Mondays, across years"


def test_the_process_of_a_deployed_run_sends_heartbeats_often_enough(deployments):
    """The process reads Prefect's settings before it imports a flow, so they must be in its environment."""
    for deployment in deployments.values():
        given = deployment["work_pool"]["job_variables"]["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]
        assert given == DEFAULTS["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]
        assert 6 * int(given) <= SILENT_AFTER.total_seconds()


@pytest.fixture
def set_up(monkeypatch, tmp_path):
    """Restore the environment variables that an import of the flows sets."""
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

    flow, given = (
        load_flow_from_entrypoint(deployments[name]["entrypoint"]),
        deployments[name].get("parameters", {}),
    )
    assert isinstance(flow, Flow)
    inspect.signature(flow.fn).bind(**given)
    assert (ROOT / given.get("config_file", "configs/quick.yaml")).is_file()


def test_the_pull_is_retried_only_if_a_server_did_not_answer(set_up):
    from prefect.states import Failed

    from flows.deployment.scheduled_flows import _pull_data, _server_did_not_answer

    for error, again in (
        (ServiceUnreachable("x"), True),
        (TrackingError("x"), False),
        (DataError("x"), False),
        (ValueError("x"), False),
    ):
        assert _server_did_not_answer(_pull_data, None, Failed(data=error)) is again
    assert _pull_data.retries == 3 and _pull_data.retry_delay_seconds == [30, 60, 120]
    assert _pull_data.retry_condition_fn is _server_did_not_answer


@pytest.fixture
def retrained(set_up, monkeypatch):
    """Call a deployment's retraining with given outcomes of its attempts; return result and pauses."""
    from types import SimpleNamespace

    from flows import retrain
    from flows.deployment import scheduled_flows as deployments

    def call(*outcomes):
        tries, pauses = iter(outcomes), []

        def attempt(_config, _root):
            outcome = next(tries)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(retrain, "retrain", SimpleNamespace(fn=attempt))
        monkeypatch.setattr(deployments.time, "sleep", pauses.append)
        monkeypatch.setattr(deployments, "get_run_logger", lambda: SimpleNamespace(warning=lambda *_: None))
        try:
            return deployments._retrain_with_retries(None), pauses
        except Exception as error:
            return error, pauses

    return call


def test_a_retraining_is_retried_only_if_a_server_did_not_answer(retrained):
    from types import SimpleNamespace

    silent, done = (
        ServiceUnreachable("x"),
        SimpleNamespace(directory=Path("runs/7"), decision=SimpleNamespace(reason="why")),
    )
    result, pauses = retrained(silent, silent, done)
    assert result == ("7", "why")
    assert len(pauses) == 2 and 30 <= pauses[0] <= 45 and 60 <= pauses[1] <= 90
    result, pauses = retrained(silent, silent, silent, silent)
    assert result is silent and len(pauses) == 3, "three further tries, then it fails"
    for error in (TrackingError("x"), DataError("x"), ValueError("x")):
        assert retrained(error) == (error, [])
