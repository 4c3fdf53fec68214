"""The real shared services: MLflow and Prefect with login on PostgreSQL, and files and data in an S3 server.

Debian's PostgreSQL is started for the test only. If the test runs as root it is started as another user,
because it refuses to run as root. moto is the S3 server.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ports import free_port

from components.config import TrackingConfig
from components.errors import TrackingError
from components.tracking.mlflow_adapter.tracker import Tracker
from components.trajectories.dvc import snapshots

ROOT = Path(__file__).parents[2]
BINARIES = next(
    (
        path
        for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        if (path / "initdb").exists()
    ),
    None,
)
SECRET = "a secret: 100%/@?"  # characters with a meaning in a URI
DATABASES = ROOT / "infra" / "postgres" / "databases.sql"
MLFLOW_SETTINGS = {
    "MLFLOW_ARTIFACTS_DESTINATION": "s3://mlflow/artifacts",
    "MLFLOW_AUTH_ADMIN_USERNAME": "runner",
    "MLFLOW_AUTH_ADMIN_PASSWORD": "twelve letters and more",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "signed",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
needs_postgres = pytest.mark.skipif(
    BINARIES is None, reason="no PostgreSQL server here (apt-get install postgresql)"
)


def wait_for(
    ready: Callable[[], bool], child: subprocess.Popen[bytes], log: Path, seconds: float = 240
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and child.poll() is None:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.3)
    pytest.fail(f"{child.args} did not start: {log.read_text()[-2000:]}")


def is_answering(url: str) -> bool:
    urllib.request.urlopen(url, timeout=5).close()
    return True


class Services:
    """Child processes that end with the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.children: list[subprocess.Popen[bytes]] = []

    def __call__(self, name: str, command: list[str], ready: Callable[[], bool], **environment: str) -> None:
        log = self.place / f"{name}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, cwd=self.place, env={**os.environ, **environment}, stdout=output, stderr=output
            )
        self.children.append(child)
        wait_for(ready, child, log)


@pytest.fixture(scope="module")
def start_service(tmp_path_factory) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("services"))
    yield services
    for child in reversed(services.children):
        child.terminate()
    for child in reversed(services.children):
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()


def query(address: str, database: str, statement: str) -> subprocess.CompletedProcess[str]:
    """Run one SQL statement as the user of the services."""
    assert BINARIES is not None
    host, _, port = address.partition(":")
    command = [str(BINARIES / "psql"), "-h", host, "-p", port, "-U", "dreamgym", "-d", database]
    environment = {**os.environ, "PGPASSWORD": SECRET}
    return subprocess.run(
        [*command, "-qAtc", statement], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def postgres(start_service) -> str:
    """host:port of a PostgreSQL with a password, and with the user and the databases of infra/postgres."""
    assert BINARIES is not None
    root = os.geteuid() == 0
    place = Path("/tmp") / f"dreamgym-postgres-{os.getpid()}"  # the other user can enter it
    place.mkdir(mode=0o700)
    (place / "password").write_text(SECRET)
    owner: list[str] = []
    if root:
        owner = ["setpriv", f"--reuid={pwd.getpwnam('nobody').pw_uid}", "--clear-groups"]
        shutil.chown(place, "nobody")
        shutil.chown(place / "password", "nobody")
    data = str(place / "data")
    init = [*owner, str(BINARIES / "initdb"), "-D", data, "-U", "dreamgym", "-A", "scram-sha-256"]
    subprocess.run(
        [*init, "--pwfile", str(place / "password"), "--no-sync"], cwd=place, check=True, capture_output=True
    )
    port = free_port()
    address = f"127.0.0.1:{port}"
    server = [str(BINARIES / "postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", str(place)]
    start_service(
        "postgres", [*owner, *server], lambda: query(address, "postgres", "select 1").returncode == 0
    )
    for line in ("create database prefect", *DATABASES.read_text().splitlines()):
        assert line.startswith("--") or query(address, "postgres", line).returncode == 0
    yield address
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def store(start_service) -> dict[str, str]:
    """The environment of an S3 server with the buckets of the compose file."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    start_service(
        "s3",
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        lambda: is_answering(f"{url}/moto-api/"),
    )
    variables = {"AWS_ENDPOINT_URL": url, "MLFLOW_S3_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
    variables |= {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something"}
    buckets = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())["services"]["buckets"]["command"]
    for outcome in ("made", "there"):
        done = subprocess.run(
            [sys.executable, *buckets[1:]],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and done.stdout == f"bucket mlflow: {outcome}\nbucket dvc: {outcome}\n", (
            done.stderr
        )
    return variables


@needs_postgres
def test_mlflow_with_login_keeps_rows_in_postgres_and_files_in_s3(
    start_service, postgres, store, tmp_path, monkeypatch
):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = {"POSTGRES_ADDRESS": postgres, "POSTGRES_PASSWORD": SECRET, **MLFLOW_SETTINGS}
    program = str(ROOT / "infra" / "mlflow_server.py")
    command = [sys.executable, program, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    (tmp_path / "tmp").mkdir()
    start = time.time() - 1
    start_service(
        "mlflow",
        command,
        lambda: is_answering(f"{url}/health"),
        TMPDIR=str(tmp_path / "tmp"),
        **server,
        **store,
    )
    written = [
        path for place in (tmp_path / "tmp", Path("/dev/shm")) for path in place.rglob("*") if path.is_file()
    ]
    fresh = [path for path in written if path.stat().st_mtime >= start]
    assert not [path for path in fresh if b"mlflow_users" in path.read_bytes()], (
        "the database's password is in no file"
    )
    settings = TrackingConfig(uri=url, experiment="shared")
    with pytest.raises(TrackingError, match="could not open"):
        Tracker(settings, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "runner")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "twelve letters and more")
    tracker = Tracker(settings, tmp_path)
    run = tracker.start_run("a run", {"dreamgym.run_id": "r"}, {"seed": 0})
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "weights").write_bytes(b"w" * 100_000)
    version = tracker.register_model(run, "policy", tmp_path / "policy", {})
    tracker.set_alias("policy", "champion", version)
    tracker.finish(run)
    downloaded = Tracker(settings, tmp_path).download(
        "policy", tracker.alias("policy", "champion"), tmp_path / "back"
    )
    assert (downloaded / "weights").read_bytes() == b"w" * 100_000
    import boto3

    s3_client = boto3.client(
        "s3",
        endpoint_url=store["AWS_ENDPOINT_URL"],
        aws_access_key_id="somebody",
        aws_secret_access_key="something",
    )
    assert any(entry["Size"] == 100_000 for entry in s3_client.list_objects_v2(Bucket="mlflow")["Contents"])


@needs_postgres
def test_prefect_with_login_keeps_its_runs_in_postgres(start_service, postgres, tmp_path):
    from urllib.parse import quote

    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    database = f"postgresql+asyncpg://dreamgym:{quote(SECRET, safe='')}@{postgres}/prefect"
    home = {
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    server = {
        "PREFECT_API_DATABASE_CONNECTION_URL": database,
        "PREFECT_SERVER_API_AUTH_STRING": "runner:secret",
        **home,
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    start_service("prefect", command, lambda: is_answering(f"{url}/health"), **server)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(f"{url}/flow_runs/filter", data=b"{}", method="POST"))
    code = "from prefect import flow\n@flow\ndef shared(): return 1\nshared()"

    def run(login: str) -> Any:
        environment = {**os.environ, **home, "PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": login}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200
        )

    assert run("runner:wrong").returncode != 0
    done = run("runner:secret")
    assert done.returncode == 0, done.stderr
    assert query(postgres, "prefect", "select state_name from flow_run").stdout.split() == ["Completed"]


def documented_command(command: str) -> list[str]:
    """The words of the first command of infra/README.md that begins so."""
    lines = (ROOT / "infra" / "README.md").read_text().splitlines()
    return next(line.split("#")[0].split() for line in lines if line.strip().startswith(command))


def test_a_worker_pulls_data_versions_from_the_store_under_another_address(store, tmp_path, monkeypatch):
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    first, second = tmp_path / "first", tmp_path / "second"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(first)], check=True)
    (first / "data").mkdir()
    (first / "data" / "note.txt").write_text("shared data")
    subprocess.run(
        [sys.executable, "-m", *documented_command("dvc remote add")],
        cwd=first,
        check=True,
        capture_output=True,
    )
    version = snapshots.snapshot(first)
    snapshots.push(first)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(second)], check=True)
    for file in ("data.dvc", ".dvc/config"):
        shutil.copy(first / file, second / file)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store["AWS_ENDPOINT_URL"].replace("127.0.0.1", "localhost"))
    assert snapshots.pull(second).hash == version.hash
    assert (second / "data" / "note.txt").read_text() == "shared data"
    text = (ROOT / "infra" / "README.md").read_text()
    assert "localhost" not in (first / ".dvc" / "config").read_text() and "endpointurl" not in text
    assert text.index("git commit") < text.index("up --build"), (
        "the image is built from the commit that names the remote"
    )


@needs_postgres
def test_dumps_restored_into_empty_databases_have_the_same_rows(postgres, tmp_path):
    """The commands of docs/guides/backup.md; the databases are dropped in between."""
    page = (ROOT / "docs" / "guides" / "backup.md").read_text()
    section = page.split("## Shared services")[1].split("## Upgrade")[0]
    commands = [line.split() for line in section.splitlines() if line.startswith("    ")]
    assert [command[0] for command in commands] == ["pg_dump"] * 2 + ["createdb"] * 2 + ["pg_restore"] * 2
    host, _, port = postgres.partition(":")
    login = {"PGHOST": host, "PGPORT": port, "PGUSER": "dreamgym", "PGPASSWORD": SECRET}
    create = "create table if not exists kept (word text); insert into kept values ('said')"
    for database in ("mlflow", "prefect"):
        assert query(postgres, database, create).returncode == 0
    counted = "select count(*) from information_schema.tables where table_schema = 'public'"
    tables = {database: query(postgres, database, counted).stdout for database in ("mlflow", "prefect")}

    def run(command: list[str]) -> None:
        assert BINARIES is not None
        program = [str(BINARIES / command[0]), *command[1:]]
        done = subprocess.run(
            program, cwd=tmp_path, env={**os.environ, **login}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    for command in commands[:2]:
        run(command)
    for database in ("mlflow", "prefect"):
        assert query(postgres, "postgres", f"drop database {database} with (force)").returncode == 0
    for command in commands[2:]:
        run(command)
    for database in ("mlflow", "prefect"):
        assert query(postgres, database, "select word from kept").stdout.split()[-1] == "said"
        assert query(postgres, database, counted).stdout == tables[database]
