"""An object store whose credentials expire in the middle of a push: said, and nothing is lost.

moto is the S3 server. It accepts a number of requests and refuses all later ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import boto3
import pytest
from ports import free_port

from components.errors import DataError
from components.trajectories.dvc import push_and_pull, snapshots

FILES = 8


def accept(url: str, requests: int) -> None:
    """Let the server refuse all requests after so many."""
    body = str(requests).encode()
    request = urllib.request.Request(
        f"{url}/moto-api/reset-auth", data=body, headers={"Content-Type": "text/plain"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The address of an S3 server with the bucket `dvc`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    variables = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something"}
    for name, value in (variables | {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        child = subprocess.Popen(
            command, env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "1000000"}, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                boto3.client("s3").create_bucket(Bucket="dvc")
                break
            except Exception:  # it has not started yet
                assert child.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.5)
        yield url
    finally:
        child.kill()
        child.wait()


def make_repository(place: Path) -> Path:
    """Create a repository with a version of data that is in no remote yet."""
    place.mkdir()
    for command in (
        ["git", "init", "-q"],
        [sys.executable, "-m", "dvc", "init", "-q"],
        [sys.executable, "-m", "dvc", "remote", "add", "-q", "-d", "store", "s3://dvc/data"],
    ):
        subprocess.run(command, cwd=place, check=True)
    for number in range(FILES):
        file = place / "data" / "own" / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"content {number}")
    snapshots.snapshot(place)
    return place


def test_a_push_whose_credentials_expire_is_finished_by_the_next_one(server, tmp_path):
    repository = make_repository(tmp_path / "repository")
    accept(server, 4)
    with pytest.raises(DataError, match=r"refused the credentials of `dvc push .*type the same again"):
        push_and_pull.push(repository)
    accept(server, 1_000_000)
    assert push_and_pull.push(repository) == "store"
    listed = boto3.client("s3").list_objects_v2(Bucket="dvc")["Contents"]
    there = {"".join(entry["Key"].split("/")[-2:]) for entry in listed}
    cache = repository / ".dvc" / "cache" / "files" / "md5"
    assert there == {"".join(path.parts[-2:]) for path in cache.glob("*/*")}
    assert len(there) == FILES
