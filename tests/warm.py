"""Commands in processes that are forked with the heavy libraries loaded: a test file starts dozens, and each
would load them for seconds.

What a forked process has loaded reads nothing of a clone's own settings; our code, Prefect and MLflow are
imported by each command anew.
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
LOADED = (
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
    """`dreamgym ARGUMENTS` in the clone, by the clone's own code; its output goes to a file, its exit code
    comes back.

    Raises:
        subprocess.TimeoutExpired: it was killed after `timeout` seconds.
    """
    server = _server()
    assert server.stdin and server.stdout
    asked = {
        "arguments": list(arguments),
        "clone": str(clone),
        "environment": dict(environment),
        "output": str(output),
    }
    server.stdin.write(json.dumps(asked | {"timeout": timeout}) + "\n")
    server.stdin.flush()
    code: int | None = json.loads(server.stdout.readline())
    if code is None:
        raise subprocess.TimeoutExpired(list(arguments), timeout)
    return code


@cache
def _server() -> subprocess.Popen[str]:
    """The process that the commands are forked from; it ends with this one."""
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
    """Fork a command for each line of standard input; in the child, become it and come back when it has
    ended.
    """
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _become(asked)
            return
        print(json.dumps(_ended(child, asked["timeout"])), flush=True)


def _ended(child: int, timeout: float) -> int | None:
    """The exit code; None if it had to be killed."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, timeout)
    _, status = os.waitpid(child, 0)
    late = not signal.setitimer(signal.ITIMER_REAL, 0)[0]
    return None if late else os.waitstatus_to_exitcode(status)


def _become(asked: dict[str, str]) -> None:
    """The command, in its directory, with its environment and the clone's code in front of everything."""
    output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(asked["clone"])
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[arg-type]
    for name in [name for name in sys.modules if name.split(".")[0] in ("flows", "components", "warm")]:
        del sys.modules[name]
    sys.path[:] = [
        asked["clone"],
        *(entry for entry in sys.path if Path(entry).resolve() not in (TESTS, TESTS.parent)),
    ]
    importlib.invalidate_caches()
    sys.argv = ["-c", *asked["arguments"]]
    from flows.cli import main

    main()
