"""The index on the disk: opened, completed or built anew from the log, and never trusted without its card.

`<directory>/stored/` holds Chroma's files, the hashes of the steps in their order, and card.json, which says
what they were made with. It is only ever replaced as a whole, built beside and renamed, under a lock; a run
works on a private copy, so that neither another process nor what the run adds can touch it. Rules of opening,
each stated in the message:

1. None there: built.
2. Its steps are the first of the log's: the rest is added.
3. The log's steps are the first of its own (a run that opens the training part alone): used without the
   others.
4. A damaged card or file, another encoder, action weight or version of Chroma, another log: built anew.

Nothing is ever lost with it: the log is the truth. `dreamgym index --rebuild` makes it again.
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
    """What a stored index was made with; `files` are the hashes of its files, known once it is built."""

    encoder: str
    action_weight: float
    dimensions: int
    chroma: str
    steps: int
    fingerprint: str
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, encoder: Encoder, action_weight: float, steps: Sequence[Step]) -> IndexCard:
        """The card that an index of `steps` would have."""
        return cls(
            encoder.identity,
            action_weight,
            2 * encoder.dimensions,
            chroma_version(),
            len(steps),
            _fingerprint(_hashes(steps)),
        )


class PrivateIndex(ChromaIndex):
    """A copy of a stored index for one run, removed when it is closed."""

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
    """A private index of exactly `steps`, in their order, and a sentence on what was done to the stored one.

    Args:
        card: what an index of `steps` should say.
        encode: the vectors [n, d] of steps.
        rebuild: build it anew, whatever is there.
    """
    began, stored = time.monotonic(), directory / "stored"
    with _locked(directory):
        there, reason = (0, "as asked") if rebuild else _usable(stored, card, _hashes(steps))
        if there < len(steps):
            with _built_beside(stored, keep=there > 0) as folder:
                _fill(folder, card, steps, there, encode)
        index = PrivateIndex(stored)
    index.keep(range(len(steps)))
    message = f"Stored index: {_what(there, reason, len(steps))} ({time.monotonic() - began:.1f} s)."
    _LOG.info(message)
    return index, message


def size_of(directory: Path) -> int:
    """Bytes of the stored index on the disk."""
    return sum(path.stat().st_size for path in (directory / "stored").rglob("*") if path.is_file())


def _what(there: int, reason: str, steps: int) -> str:
    if reason:
        return f"{'built' if reason == _NONE else 'rebuilt'} from the log with {steps:,} steps: {reason}"
    if there < steps:
        return f"older than the log, so {steps - there:,} steps were added to its {there:,}"
    more = f"; {there - steps:,} more in it are not of this log and left out" if there > steps else ""
    return f"up to date with {steps:,} steps{more}"


_NONE = "there was none"
_MUST_AGREE = {
    "encoder": "encoder",
    "action_weight": "action weight",
    "dimensions": "number of dimensions",
    "chroma": "Chroma",
}


def _usable(stored: Path, card: IndexCard, hashes: np.ndarray) -> tuple[int, str]:
    """How many steps of the stored index can be used, or 0 and the reason why none can."""
    if not stored.is_dir():
        return 0, _NONE
    try:
        found = IndexCard(**json.loads(read_text(stored / "card.json")))
        known = np.load(stored / "steps.npy", allow_pickle=False)
        files = _file_hashes(stored)
    except (OSError, ValueError, TypeError, EOFError) as error:
        return 0, f"its card or its list of steps is damaged ({type(error).__name__}: {error})"
    damaged = sorted(name for name in {*files, *found.files} if files.get(name) != found.files.get(name))
    if damaged or len(known) != found.steps or _fingerprint(known) != found.fingerprint:
        return 0, f"its files are not those that its card names ({damaged[0] if damaged else 'steps.npy'})"
    for name, word in _MUST_AGREE.items():
        if getattr(found, name) != getattr(card, name):
            return (
                0,
                f"it was made with the {word} {getattr(found, name)}, this run has {getattr(card, name)}",
            )
    common = min(len(known), len(hashes))
    if not np.array_equal(known[:common], hashes[:common]):
        first = int(np.flatnonzero(known[:common] != hashes[:common])[0])
        return 0, f"it was made of another log, whose step {first + 1:,} is another one"
    return len(known), ""


def _fill(folder: Path, card: IndexCard, steps: Sequence[Step], there: int, encode: Encode) -> None:
    """Add the steps from number `there` on, and write the card."""
    (folder / "card.json").unlink(missing_ok=True)
    index = ChromaIndex(folder / "chroma")
    try:
        index.add(encode(steps[there:]))
    finally:
        index.close()
    np.save(folder / "steps.npy", _hashes(steps))
    text = json.dumps(asdict(card) | {"files": _file_hashes(folder)}, indent=2, sort_keys=True)
    (folder / "card.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def _built_beside(stored: Path, keep: bool) -> Iterator[Path]:
    """A folder, begun as a copy of `stored` if it is to be kept, that takes its place once it is finished."""
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
        for left in stored.parent.glob("*.tmp"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process at a time; the lock of one that dies is free."""
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
    """One number a step, uint64 [n]."""
    digests = [
        hashlib.blake2b(f"{len(state)}:{state}{action}".encode("utf-8", "surrogatepass"), digest_size=8)
        for state, action in steps
    ]
    return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8")


def _fingerprint(hashes: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(hashes, "<u8").tobytes()).hexdigest()
