"""Expected failures are recognised in whatever exception contains them; bugs are not."""

import re

import httpx
import pytest
import sqlalchemy
import torch
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from ports import free_port
from prefect.settings import PREFECT_API_URL, temporary_settings

from components.errors import FidelityGateClosed, TrainingError
from flows.failures import expected_failure


def test_an_expected_failure_is_recognised_inside_other_exceptions():
    gate = FidelityGateClosed("too low")
    wrapped = RuntimeError("the flow run failed")
    wrapped.__cause__ = gate
    assert expected_failure(wrapped) is gate
    assert expected_failure(OSError(28, "No space left on device", "data/x")).exit_code == 1
    handled = KeyError("a bug while a failure was handled")
    handled.__context__ = gate
    assert expected_failure(handled) is None


def test_a_database_without_room_is_a_full_disk(tmp_path):
    """MLflow's SQLite with a limited size, which fails as on a full disk."""
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    run_id = client.create_run(client.create_experiment("full", artifact_location=str(tmp_path))).info.run_id
    engine = client._tracking_client.store.engine
    sqlalchemy.event.listen(
        engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count=1")
    )
    engine.dispose()
    with pytest.raises(MlflowException) as failed:
        for number in range(1000):
            client.log_param(run_id, f"p{number}", "v" * 400)
    wrapped = RuntimeError("the stage failed")
    wrapped.__cause__ = failed.value
    failure = expected_failure(wrapped)
    assert failure is not None and failure.exit_code == 1
    assert failure.found.startswith("The disk is full") and "Free some space" in failure.next_step


def test_a_lost_prefect_server_is_an_expected_failure_and_other_failed_requests_are_bugs():
    """Real refusals of a free port. A server with a broken database answers 500; 404 would be a bug."""
    api = f"http://127.0.0.1:{free_port()}/api"

    def failure(url, status=0):
        with pytest.raises(httpx.HTTPError) as failed:
            if status:
                httpx.Response(status, request=httpx.Request("POST", url)).raise_for_status()
            httpx.get(url)
        return expected_failure(failed.value)

    with temporary_settings({PREFECT_API_URL: api}):
        gone, broken = failure(f"{api}/flow_runs/"), failure(f"{api}/logs/", 500)
        assert (
            failure(f"{api}/logs/", 404) is None
            and failure(f"http://127.0.0.1:{free_port()}/v1/chat") is None
        )
    assert (
        gone is not None
        and gone.exit_code == 1
        and api in gone.found
        and "same command again" in gone.next_step
    )
    assert broken is not None and "500" in broken.found


@pytest.mark.parametrize(
    ("words", "found", "next_step"),
    [
        (
            "CUDA out of memory. Tried to allocate 2 GiB.",
            "too little memory",
            "batch_tokens.*type the command",
        ),
        ("CUDA error: out of memory", "too little memory", "batch_tokens"),
        ("CUDA error: unspecified launch failure\nCUDA kernel", "computes no more: CUDA error", "nvidia-smi"),
        ("NCCL error in: comm.cpp", "computes no more", "same command again"),
    ],
)
def test_a_gpu_without_memory_or_lost_is_named_with_what_to_type(words, found, next_step):
    """As torch raises it; there is no GPU to lose here."""
    kind = torch.OutOfMemoryError if "Tried" in words else RuntimeError
    failure = expected_failure(kind(words))
    assert isinstance(failure, TrainingError) and found in failure.found and "\n" not in failure.found
    assert re.search(next_step, failure.next_step)
    assert expected_failure(ValueError(words)) is None


def test_an_index_out_of_range_on_a_gpu_is_a_bug():
    assert expected_failure(RuntimeError("CUDA error: device-side assert triggered")) is None
