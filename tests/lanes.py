"""The lanes of the test suite: which tests need an engine, a command or a server.

    make check           unit and contract tests: no engine, no command, no server
    make test            check, and the tests with the real engine and the whole command
    make test-long       whole studies and several runs one after another: a minute and more each
    make test-services   browsers and servers: Chromium, PostgreSQL, S3, Prefect deployments, MLflow, OpenEnv
    pytest -m slow       tests that take minutes to hours, by name

A test belongs to a lane by its file or by the fixtures that it uses.
"""

from __future__ import annotations

import pytest

SERVICES = (
    "cluster/",
    "environments/browser/",
    "evaluation/test_report_in_browser.py",
    "experience/retrieval/test_chroma_server.py",
    "flows/cli/test_ui.py",
    "flows/deployment/",
    "infra/",
    "language/engines/test_vllm_server.py",
    "language/engines/test_vllm_weight_transfer.py",
    "serving/",
    "tracking/test_pyfunc_models.py",
)
"""Files and folders whose tests start a browser or a server."""
LONG = (
    "flows/jobs/test_collect_again.py",
    "flows/jobs/test_experiments.py",
    "flows/jobs/test_reproduce.py",
    "flows/jobs/test_transfer.py",
    "flows/past_runs/test_next_round.py",
    "flows/test_guide_to_add_a_world.py",
    "flows/test_kills.py",
    "flows/test_logs_alone.py",
)
"""Files whose tests make several runs, a study or an ablation."""
SERVICE_WORLDS = ("browser",)
"""Environments whose parametrised contract tests start a browser."""
ENGINE = (
    "docs/test_site.py",
    "environments/alfworld/",
    "environments/openenv/",
    "environments/test_example_worlds.py",
    "environments/test_contract_of_own_worlds.py",
    "environments/test_environment_contract.py",
    "experience/test_experience_model.py",
    "flows/cli/test_cli.py",
    "flows/cli/test_own_worlds.py",
    "flows/cli/test_output.py",
    "flows/cli/test_play",
    "flows/cli/test_preflight.py",
    "flows/jobs/",
    "flows/past_runs/",
    "flows/stages/test_time_limits.py",
    "flows/test_",
    "language/engines/test_vllm_engine.py",
    "language/test_foreign_models.py",
    "language/training/test_parallel.py",
    "policy/test_early_experience.py",
    "policy/test_rollout.py",
    "policy/rl/test_loop",
    "policy/rl/test_players.py",
    "test_damaged_files.py",
    "test_orphans.py",
    "test_security.py",
    "tracking/test_mlflow_moved.py",
    "tracking/test_mlflow_store.py",
    "tracking/test_model_registry.py",
    "trajectories/test_collect.py",
    "trajectories/test_dvc_command.py",
    "trajectories/test_snapshots.py",
    "trajectories/test_versions.py",
)
"""Files and folders whose tests start the real engine, a server, workers or a command, or train for long."""
ENGINE_FIXTURES = {"world", "played", "finished", "learnt", "learnt_qwen"}
"""Fixtures that start the real engine, run a whole command, or train a model."""


def mark_lane(item: pytest.Item) -> None:
    """Mark a test with its lane: `services`, `long`, `engine`, or no mark for `make check`."""
    path = item.path.as_posix().partition("/tests/")[2]
    fixtures = set(getattr(item, "fixturenames", ()))
    parameters = getattr(item, "callspec", None)
    values = {str(value) for value in parameters.params.values()} if parameters else set()
    is_contract = path.startswith("environments/test_environment_contract")
    if path.startswith(SERVICES) or (is_contract and _names_a_service(item, values)):
        item.add_marker("services")
    elif path.startswith(LONG):
        item.add_marker("long")
    elif path.startswith(ENGINE) or fixtures & ENGINE_FIXTURES:
        item.add_marker("engine")


def _names_a_service(item: pytest.Item, values: set[str]) -> bool:
    return bool(values & set(SERVICE_WORLDS)) or any(f"[{name}" in item.name for name in SERVICE_WORLDS)
