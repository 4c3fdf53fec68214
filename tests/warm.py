"""Runs commands in processes forked from one that has loaded the heavy libraries, which takes seconds.

The preloaded libraries read no settings of a clone. Each command imports our code, Prefect and MLflow itself.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from flows.settings import DEFAULTS

TESTS = Path(__file__).parent
PRELOADED = (
    "scipy.stats",
    "pandas",
    "pyarrow.parquet",
    "sqlalchemy",
    "transformers",
    "peft",
    "torch.nn.attention.flex_attention",
)


def run_command(
    arguments: Sequence[str], clone: Path, environment: Mapping[str, str], output: Path, timeout: float
) -> int:
    """Run `dreamgym ARGUMENTS` in the clone with the clone's code; return the exit code.

    Args:
        output: file that the output is written to.

    Raises:
        subprocess.TimeoutExpired: it was killed after `timeout` seconds.
    """
    server = _server()
    assert server.stdin and server.stdout
    request = {
        "arguments": list(arguments),
        "clone": str(clone),
        "environment": dict(environment),
        "output": str(output),
    }
    server.stdin.write(json.dumps(request | {"timeout": timeout}) + "\n")
    server.stdin.flush()
    code: int | None = json.loads(server.stdout.readline())
    if code is None:
        raise subprocess.TimeoutExpired(list(arguments), timeout)
    return code


@cache
def _server() -> subprocess.Popen[str]:
    """Return the process that commands are forked from; it ends with this one."""
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import warm; warm.serve()"
    environment = {**DEFAULTS, **os.environ, "PYTHONPATH": str(TESTS.parent)}
    server = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(server.kill)
    return server


def serve() -> None:
    """Fork a command for each line of standard input, and print its exit code."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _run_in_child(request)
            return
        print(json.dumps(_exit_code(child, request["timeout"])), flush=True)


def _exit_code(child: int, timeout: float) -> int | None:
    """Wait for the child and return its exit code; None if it was killed after `timeout` seconds."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, timeout)
    _, status = os.waitpid(child, 0)
    is_late = not signal.setitimer(signal.ITIMER_REAL, 0)[0]
    return None if is_late else os.waitstatus_to_exitcode(status)


def _run_in_child(request: dict[str, str]) -> None:
    """Run the command in its directory, with its environment and the clone's code first on the path."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(request["clone"])
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[arg-type]
    for name in [name for name in sys.modules if name.split(".")[0] in ("flows", "components", "warm")]:
        del sys.modules[name]
    sys.path[:] = [
        request["clone"],
        *(entry for entry in sys.path if Path(entry).resolve() not in (TESTS, TESTS.parent)),
    ]
    importlib.invalidate_caches()
    sys.argv = ["-c", *request["arguments"]]
    from flows.cli import main

    main()
