"""Ten damages to each kind of file that a run reads cause a clear error or an announced rebuild, and no loss.

They are drawn with a fixed seed. In files with checksums every changed byte must be noticed. Files that
people write (config, manifest, data.dvc) must be refused if their content is no longer valid.
"""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from builders import make_model, make_task, make_transition

from components.config import Config, RetrievalConfig, load_config
from components.errors import DataError, DreamGymError
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.training.checkpoints import checkpoint_limit, read_checkpoint
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.tracking.manifest import MANIFEST, Manifest
from components.tracking.run_environment import collect_environment
from components.trajectories.dvc import snapshots
from components.trajectories.replay_log import read_log
from components.trajectories.store import read_tasks, read_transitions, write_tasks, write_transitions

ROOT = Path(__file__).parents[1]
Damage = Callable[[random.Random, bytes], bytes]


def _place(rng: random.Random, content: bytes) -> int:
    return rng.randrange(len(content) // 8, len(content) * 7 // 8)


def _over(rng: random.Random, content: bytes, new: bytes) -> bytes:
    """Return the text with `new` written over as many bytes, at a place where that changes some."""
    places = [
        start
        for start in range(0, len(content) - len(new), len(new))
        if content[start : start + len(new)] != new
    ]
    start = rng.choice(places)
    return content[:start] + new + content[start + len(new) :]


BYTES: dict[str, Damage] = {
    "empty": lambda rng, content: b"",
    "cut off": lambda rng, content: content[: _place(rng, content)],
    "its last byte missing": lambda rng, content: content[:-1],
    "beginning missing": lambda rng, content: content[_place(rng, content) :],
    "zeros": lambda rng, content: bytes(len(content)),
    "a block of zeros": lambda rng, content: _over(rng, content, bytes(48)),
    "random bytes in it": lambda rng, content: _over(rng, content, rng.randbytes(32)),
    "random bytes alone": lambda rng, content: rng.randbytes(len(content)),
    "a web page": lambda rng, content: b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "a pointer of git LFS": lambda rng, content: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    ),
}
TEXTS: dict[str, Damage] = {
    "empty": lambda rng, content: b"",
    "cut off": lambda rng, content: content[: len(content) // 2] + b"\n  - {",
    "not UTF-8": lambda rng, content: (
        content[: len(content) // 2] + b"\xff\xfe" + content[len(content) // 2 :]
    ),
    "zeros": lambda rng, content: bytes(len(content)),
    "random bytes": lambda rng, content: rng.randbytes(len(content)),
    "a list": lambda rng, content: b"[1, 2, 3]",
    "a word": lambda rng, content: b"hello",
    "a merge conflict": lambda rng, content: (
        b"<<<<<<< HEAD\n" + content + b"=======\n" + content + b">>>>>>> other\n"
    ),
    "code to run": lambda rng, content: b"!!python/object/apply:os.system ['touch /tmp/owned']\n",
    "a thousand brackets": lambda rng, content: b"[" * 1000,
}


def check(error: DreamGymError, path: Path) -> None:
    """Check that a message names the file and says what to do."""
    assert path.name in str(error), error
    assert error.next_step or error.expected, error
    assert "Traceback" not in str(error)


def damaged(damage: str, path: Path, number: int) -> None:
    content = path.read_bytes()
    changed = (BYTES | TEXTS)[damage](random.Random(f"{damage} {number}"), content)
    assert changed != content
    path.chmod(0o644)
    path.write_bytes(changed)


@pytest.mark.parametrize("damage", BYTES)
@pytest.mark.parametrize("kind", ["tasks", "transitions", "replay log"])
def test_trajectories(damage, kind, tmp_path):
    path = tmp_path / "00001-first.parquet"
    records: list[Any] = [
        make_task(number) if kind == "tasks" else make_transition(number) for number in range(400)
    ]
    (write_tasks if kind == "tasks" else write_transitions)(path, records)
    damaged(damage, path, 0)
    spoilt = path.read_bytes()
    with pytest.raises(DataError) as raised:
        {
            "tasks": read_tasks,
            "transitions": read_transitions,
            "replay log": lambda shard: read_log(shard.parent),
        }[kind](path)
    check(raised.value, path)
    assert path.read_bytes() == spoilt, "what is left of it is not touched"


@pytest.mark.parametrize("damage", [name for name in TEXTS if name != "empty"])
def test_config_file(damage, tmp_path):
    path = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "configs" / "quick.yaml", path)
    damaged(damage, path, 1)
    with pytest.raises(DreamGymError) as raised:
        load_config(path)
    check(raised.value, path)
    assert not Path("/tmp/owned").exists()


def test_an_empty_config_file_is_the_defaults(tmp_path):
    (tmp_path / "mine.yaml").write_text("# nothing yet\n")
    assert load_config(tmp_path / "mine.yaml") == Config()


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    return [path]


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_value_of_a_config(number, tmp_path):
    """A key drawn at random gets a value that no key takes: the message names the key."""
    rng, values = random.Random(number), Config().model_dump(mode="json")
    place = rng.choice(_leaves(values))
    section = values
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = {"nobody": ["knows", {"this": -1}]}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    with pytest.raises(DreamGymError) as raised:
        load_config(path)
    check(raised.value, path)
    assert ".".join(map(str, place)) in str(raised.value)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    Manifest(
        run_id="r1", environment=collect_environment(ROOT, folder), config=Config().model_dump(mode="json")
    ).save(folder)
    return folder / MANIFEST


@pytest.mark.parametrize("damage", TEXTS)
def test_manifest(damage, manifest, tmp_path):
    path = Path(shutil.copy(manifest, tmp_path))
    damaged(damage, path, 2)
    with pytest.raises(DataError) as raised:
        Manifest.load(tmp_path)
    check(raised.value, path)


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_value_of_a_manifest(number, manifest, tmp_path):
    rng, values = random.Random(number), json.loads(manifest.read_text())
    own = [
        place
        for place in _leaves(values)
        if place[0] not in ("config", "decision", "seeds") and "packages" not in place
    ]
    place = rng.choice(own)
    section = values
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = {"nobody": {"knows": "this"}}
    (tmp_path / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(DataError) as raised:
        Manifest.load(tmp_path)
    check(raised.value, tmp_path / MANIFEST)


LIMIT = checkpoint_limit(0)
EXAMPLES = [Example([Segment([1, 2, 3, 4], [False, True, True, True])]) for _ in range(8)]


def train(checkpoint: Path, epochs: float = 2) -> Any:
    model = make_model()
    options: dict[str, Any] = {"learning_rate": 1e-3, "batch_tokens": 16, "seed": 0, "checkpoint_every": 1}
    return supervised_finetune(model, EXAMPLES, epochs=epochs, checkpoint=checkpoint, **options)


def members(path: Path) -> Any:
    """What an archive holds; None if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # damaged in any way
        return None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("training") / "checkpoint.pt"
    train(path)
    return path


@pytest.mark.parametrize("damage", BYTES)
def test_checkpoint(damage, checkpoint, tmp_path):
    path = tmp_path / checkpoint.name
    for seed in range(3, 30):
        shutil.copy(checkpoint, path)
        damaged(damage, path, seed)
        if members(path) != members(checkpoint):  # else it hit the padding between two tensors
            break
    spoilt = path.read_bytes()
    with pytest.raises(DreamGymError) as raised:
        train(path)
    check(raised.value, path)
    assert path.read_bytes() == spoilt
    path.unlink()
    train(path)


def test_a_checkpoint_of_something_else(tmp_path):
    for state in ([1, 2], {"weights": torch.zeros(2)}, {"key": "another"}):
        torch.save(state, tmp_path / "checkpoint.pt")
        with pytest.raises(DreamGymError, match="of another training.*Delete"):
            train(tmp_path / "checkpoint.pt")


def test_one_bit_of_a_weight_is_noticed(checkpoint, tmp_path):
    path = Path(shutil.copy(checkpoint, tmp_path))
    weight = next(iter(read_checkpoint(path, LIMIT)["weights"].values())).numpy().tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(weight) + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DreamGymError, match="cannot be read.*Delete"):
        read_checkpoint(path, LIMIT)


def test_a_checkpoint_larger_than_its_training_makes_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """The file is of zeros that take no room on the disk."""
    path, limit = (
        tmp_path / "checkpoint.pt",
        checkpoint_limit(sum(weight.numel() for weight in make_model().parameters())),
    )
    with path.open("wb") as file:
        file.truncate(limit + 1)
    monkeypatch.setattr("torch.load", lambda *_, **__: pytest.fail("was read"))
    with pytest.raises(
        DreamGymError,
        match=f"has {limit + 1:,} bytes. Expected at most {limit:,}, by the size .*Delete {path}",
    ):
        train(path)


def test_a_checkpoint_that_unpacks_to_more_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.load", lambda *_, **__: pytest.fail("was read"))
    with zipfile.ZipFile(tmp_path / "checkpoint.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(LIMIT + 1))
    assert (tmp_path / "checkpoint.pt").stat().st_size < LIMIT / 500
    with pytest.raises(DreamGymError, match=f"has {LIMIT + 1:,} bytes. Expected at most"):
        read_checkpoint(tmp_path / "checkpoint.pt", LIMIT)


LOG = [make_transition(step) for step in range(30)]
CHROMA = RetrievalConfig(k=2, index="chroma", dimensions=32)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("index")
    ReplayBuffer(CHROMA, LOG, stored=place).close()
    return place


@pytest.mark.parametrize("damage", BYTES)
def test_index(damage, index, tmp_path):
    """A damaged index is rebuilt from the log, with a message."""
    place = Path(shutil.copytree(index, tmp_path / "index"))
    files = sorted(
        path for path in (place / "stored").rglob("*") if path.is_file() and any(path.read_bytes()[:4096])
    )
    damaged(damage, random.Random(damage).choice(files), 4)
    buffer = ReplayBuffer(CHROMA, LOG, stored=place)
    assert "rebuilt from the log" in buffer.opening_message
    assert buffer.steps == len(LOG)
    buffer.close()
    again = ReplayBuffer(CHROMA, LOG, stored=place)
    assert "up to date" in again.opening_message
    again.close()


@pytest.mark.parametrize("damage", TEXTS)
def test_data_dvc(damage, tmp_path):
    path = Path(shutil.copy(ROOT / "data.dvc", tmp_path))
    damaged(damage, path, 5)
    with pytest.raises(DataError) as raised:
        snapshots.data_hash(tmp_path)
    check(raised.value, path)


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_value_in_data_dvc(number, tmp_path):
    rng = random.Random(number)
    out = yaml.safe_load((ROOT / "data.dvc").read_text())["outs"][0]
    key = rng.choice(["md5", "nfiles", "size"])
    out[key] = rng.choice([None, "../../etc/passwd", [1], {"a": 1}, "", -1, "x" * 34 + ".dir"])
    path = tmp_path / "data.dvc"
    path.write_text(yaml.safe_dump({"outs": [out]}))
    with pytest.raises(DataError) as raised:
        snapshots.data_hash(tmp_path)
    check(raised.value, path)
