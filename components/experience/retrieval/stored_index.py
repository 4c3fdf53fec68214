"""The vector index on disk: opened, completed or rebuilt from the log, and never used without its card.

`<directory>/stored/` holds Chroma's files, the hashes of the steps in their order, and card.json, which says
what they were made with. The folder is only replaced as a whole: built under another name and renamed, under
a lock. A run works on a private copy, so that no other process changes it and its additions are not stored.
Rules of opening, each stated in the message:

1. There is no stored index: it is built.
2. Its steps are the first steps of the log: the rest is added.
3. The steps of the log are its own first steps (a run that opens the training part alone): it is used
   without the others.
4. Its card or a file is damaged, or its encoder, action weight, version of Chroma or log is another one: it
   is rebuilt.

The log is the truth, so nothing is lost with the index. `dreamgym index --rebuild` builds it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from components.experience.retrieval.encoders import Encoder
from components.experience.retrieval.vector_index import ChromaIndex, chroma_version
from components.files import read_text

_LOG = logging.getLogger(__name__)
Step = tuple[str, str]
Encode = Callable[[Sequence[Step]], np.ndarray]


@dataclass(frozen=True)
class IndexCard:
    """What a stored index was made with. `files` maps its files to their hashes, once it is built."""

    encoder: str
    action_weight: float
    dimensions: int
    chroma: str
    steps: int
    fingerprint: str
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, encoder: Encoder, action_weight: float, steps: Sequence[Step]) -> IndexCard:
        """The card of an index of `steps`."""
        return cls(
            encoder.identity,
            action_weight,
            2 * encoder.dimensions,
            chroma_version(),
            len(steps),
            _fingerprint(_hashes(steps)),
        )


class PrivateIndex(ChromaIndex):
    """A copy of a stored index for one run, which is deleted at `close`."""

    def __init__(self, stored: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dreamgym-index-")
        shutil.copytree(stored / "chroma", Path(self._folder.name) / "chroma")
        super().__init__(Path(self._folder.name) / "chroma")

    def close(self) -> None:
        """See `VectorIndex`."""
        super().close()
        self._folder.cleanup()


def open_stored(
    directory: Path, card: IndexCard, steps: Sequence[Step], encode: Encode, rebuild: bool = False
) -> tuple[ChromaIndex, str]:
    """Open a private index of exactly `steps`, in their order, and bring the stored one up to date.

    Args:
        card: the card of an index of `steps`.
        encode: steps -> their vectors [n, d].
        rebuild: build the stored index again, even if it can be used.

    Returns:
        The index, and a sentence on what was done to the stored one.
    """
    start_seconds = time.monotonic()
    stored = directory / "stored"
    with _exclusive_lock(directory):
        usable_steps, problem = (0, "as asked") if rebuild else _usable_steps(stored, card, _hashes(steps))
        if usable_steps < len(steps):
            with _replacement(stored, keep=usable_steps > 0) as folder:
                _add_steps(folder, card, steps, usable_steps, encode)
        index = PrivateIndex(stored)
    index.keep(range(len(steps)))
    description = _opening_description(usable_steps, problem, len(steps))
    message = f"Stored index: {description} ({time.monotonic() - start_seconds:.1f} s)."
    _LOG.info(message)
    return index, message


def stored_size_bytes(directory: Path) -> int:
    """Size of the stored index on disk, in bytes."""
    return sum(path.stat().st_size for path in (directory / "stored").rglob("*") if path.is_file())


def _opening_description(usable_steps: int, problem: str, steps: int) -> str:
    """What was done to the stored index; `problem` is why none of its steps could be used."""
    if problem:
        verb = "built" if problem == _NO_INDEX else "rebuilt"
        return f"{verb} from the log with {steps:,} steps: {problem}"
    if usable_steps < steps:
        return f"older than the log, so {steps - usable_steps:,} steps were added to its {usable_steps:,}"
    more = ""
    if usable_steps > steps:
        more = f"; {usable_steps - steps:,} more in it are not of this log and left out"
    return f"up to date with {steps:,} steps{more}"


_NO_INDEX = "there was none"
_CARD_FIELDS = {
    "encoder": "encoder",
    "action_weight": "action weight",
    "dimensions": "number of dimensions",
    "chroma": "Chroma",
}


def _usable_steps(stored: Path, card: IndexCard, hashes: np.ndarray) -> tuple[int, str]:
    """How many steps of the stored index can be used, and why not if none can."""
    if not stored.is_dir():
        return 0, _NO_INDEX
    try:
        stored_card = IndexCard(**json.loads(read_text(stored / "card.json")))
        stored_hashes = np.load(stored / "steps.npy", allow_pickle=False)
        files = _file_hashes(stored)
    except (OSError, ValueError, TypeError, EOFError) as error:
        return 0, f"its card or its list of steps is damaged ({type(error).__name__}: {error})"
    problem = (
        _file_problem(stored_card, stored_hashes, files)
        or _card_problem(stored_card, card)
        or _log_problem(stored_hashes, hashes)
    )
    return (0, problem) if problem else (len(stored_hashes), "")


def _file_problem(stored_card: IndexCard, stored_hashes: np.ndarray, files: dict[str, str]) -> str:
    """Which file differs from its hash in the card; "" if none does."""
    names = {*files, *stored_card.files}
    damaged = sorted(name for name in names if files.get(name) != stored_card.files.get(name))
    if damaged:
        return f"its files are not those that its card names ({damaged[0]})"
    if len(stored_hashes) != stored_card.steps or _fingerprint(stored_hashes) != stored_card.fingerprint:
        return "its files are not those that its card names (steps.npy)"
    return ""


def _card_problem(stored_card: IndexCard, card: IndexCard) -> str:
    """What the stored index was made with that this run does not use; "" if nothing."""
    for name, words in _CARD_FIELDS.items():
        if getattr(stored_card, name) != getattr(card, name):
            return (
                f"it was made with the {words} {getattr(stored_card, name)}, this run has "
                f"{getattr(card, name)}"
            )
    return ""


def _log_problem(stored_hashes: np.ndarray, hashes: np.ndarray) -> str:
    """The first step in which stored index and log differ; "" if one is the beginning of the other."""
    common = min(len(stored_hashes), len(hashes))
    different = np.flatnonzero(stored_hashes[:common] != hashes[:common])
    if len(different):
        return f"it was made of another log, whose step {int(different[0]) + 1:,} is another one"
    return ""


def _add_steps(folder: Path, card: IndexCard, steps: Sequence[Step], first: int, encode: Encode) -> None:
    """Add the steps from number `first` on, and write the card."""
    (folder / "card.json").unlink(missing_ok=True)
    index = ChromaIndex(folder / "chroma")
    try:
        index.add(encode(steps[first:]))
    finally:
        index.close()
    np.save(folder / "steps.npy", _hashes(steps))
    text = json.dumps(asdict(card) | {"files": _file_hashes(folder)}, indent=2, sort_keys=True)
    (folder / "card.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def _replacement(stored: Path, keep: bool) -> Iterator[Path]:
    """A folder that replaces `stored` once the block has filled it. It starts as a copy if `keep` is true."""
    new, old = (stored.with_name(f"{kind}-{secrets.token_hex(4)}.tmp") for kind in ("new", "old"))
    try:
        if keep:
            shutil.copytree(stored, new)
        else:
            new.mkdir()
        yield new
        if stored.exists():
            stored.rename(old)
        new.rename(stored)
    finally:
        for leftover in stored.parent.glob("*.tmp"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


@contextmanager
def _exclusive_lock(directory: Path) -> Iterator[None]:
    """A block that one process at a time runs. The lock of a process that dies is free."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _LOG.warning("Waiting for another process that opens or builds the index in %s.", directory)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _file_hashes(stored: Path) -> dict[str, str]:
    files = sorted(path for path in stored.rglob("*") if path.is_file() and path.name != "card.json")
    return {
        path.relative_to(stored).as_posix(): hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        for path in files
    }


def _hashes(steps: Sequence[Step]) -> np.ndarray:
    """The hash of each step, uint64 [n]."""
    digests = [
        hashlib.blake2b(f"{len(state)}:{state}{action}".encode("utf-8", "surrogatepass"), digest_size=8)
        for state, action in steps
    ]
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8")


def _fingerprint(hashes: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(hashes, "<u8").tobytes()).hexdigest()
