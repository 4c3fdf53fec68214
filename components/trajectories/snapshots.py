"""Versions of `data/` under DVC: one `data.dvc` for the whole directory, its bytes in the cache and in two remotes.

`seed` lies in git beside the code (`seed/`, at most 20 MB) and holds the first snapshot: it is DVC's default, so that a plain
`dvc pull` serves a fresh clone without a login. `local` (`.dreamgym/dvc-remote`, ignored by git) takes every new one and is this
clone's default from the first on, unless `core.remote` names another remote, such as an object store.

DVC fails quietly in four ways that are closed here: a fetch of a missing object succeeds, also where an HTTP remote does not answer, a
checkout writes damaged cache bytes, and a held lock ends a command after three seconds. So every checkout is compared with the hashes
in `data.dvc`, and commands wait for each other (dvc_command.py). `dvc status` is no such comparison: it trusts what checkout noted and
calls damaged bytes up to date.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from components.bounded import read_text
from components.errors import DataError, ServiceUnreachable
from components.trajectories.dvc_command import alone, disk_is_full, failed, is_silence, reason_of, run_dvc

LOCAL, SEED = "local", "seed"
SEED_LIMIT_BYTES = 20_000_000
_IGNORED = "# What DVC never needs to look at.\n.venv\n/runs\n/mlflow\n/seed\n*.tmp\n"


@dataclass(frozen=True)
class Snapshot:
    """A version of `data/`: DVC's hash of it, the number of its files, and their size in bytes."""

    hash: str
    files: int
    size: int


def init_if_needed(root: Path) -> None:
    """Put `root` under DVC, unless it is already, and name both remotes where it has none to push to.

    Raises:
        DataError: it is no git repository.
    """
    if not (root / ".git").exists():
        raise DataError(
            f"{root.absolute()} is no git repository.", "DVC keeps data.dvc in git.", "Type `git init` there, then the same again."
        )
    if not (root / ".dvc" / "config").exists():
        _dvc(root, "init")
        (root / ".dvcignore").write_text(_IGNORED, encoding="utf-8")
    if not set(_remotes(root)) - {SEED}:
        configure_remotes(root)


def configure_remotes(root: Path) -> None:
    """Write the two remotes into `.dvc/config`, relative to it; another default remote that was set there stays the default."""
    from dvc.config import Config
    from dvc.config_schema import RelPath

    with Config(dvc_dir=str(root.absolute() / ".dvc")).edit("repo") as config:
        core = config.setdefault("core", {})
        core.update(analytics="false", autostage="false", remote=core.get("remote", SEED))
        for name, place in ((SEED, "seed"), (LOCAL, ".dreamgym/dvc-remote")):
            config.setdefault("remote", {})[name] = {"url": RelPath(str(root.absolute() / place)), "verify": "true"}


def snapshot(root: Path) -> Snapshot:
    """Version `data/` as it is now: update `data.dvc` and the cache. The same data gives the same hash.

    Raises:
        DataError: there is no data or no git repository, the disk is full, or DVC stays locked.
    """
    init_if_needed(root)
    if not any(path.is_file() for path in (root / "data").rglob("*")):
        raise DataError(f"{root / 'data'} holds no files.", "Expected data to take a snapshot of.", "Type `dreamgym collect` first.")
    _dvc(root, "add", "data")
    return _pointer(root)


def data_hash(root: Path) -> str:
    """DVC's hash of the snapshot that `data.dvc` names. Raises DataError if the file is missing or unreadable."""
    return _pointer(root).hash


def part_hash(root: Path, folder: str, without: str = "") -> str:
    """The hash that DVC would give to `folder` of the snapshot if it were versioned by itself, and had no folder `without`.

    Where neither `data/` nor the cache tells the snapshot's files it is the snapshot's own. Raises DataError as `data_hash`.
    """
    digest = data_hash(root)
    if _object(root, digest).is_file():
        files = _listing(root)
    elif _hash_of(files := _lying(root)) != digest:
        return digest
    below = {relative.removeprefix(f"{folder}/"): md5 for relative, md5 in files.items() if relative.startswith(f"{folder}/")}
    return _hash_of({relative: md5 for relative, md5 in below.items() if not (without and relative.startswith(f"{without}/"))})


@dataclass(frozen=True)
class Drift:
    """How `data/` differs from the version that data.dvc names, relative to `data/`.

    `changed`: the version has them, and data/ has others or none; `added`: data/ alone has them; `unsaved`: those of data/ that are in no
    version in the cache, so that a checkout would lose them.
    """

    changed: list[str]
    added: list[str]
    unsaved: list[str]


def drift(root: Path) -> Drift:
    """Hold `data/` against data.dvc, byte by byte; what another DVC command changes at that moment is waited for.

    Raises DataError as `data_hash`, or if that command takes too long.
    """
    try:
        if _hash_of(_lying(root)) == data_hash(root):
            return Drift([], [], [])
    except FileNotFoundError:
        pass  # a command that goes on at this moment replaces files
    with alone(root):
        digest, lying = data_hash(root), _lying(root)
        if _hash_of(lying) == digest:
            return Drift([], [], [])
        named = _listing(root) if _object(root, digest).is_file() else {}
        changed = [relative for relative, md5 in named.items() if lying.get(relative) != md5]
        added = [relative for relative in lying if relative not in named]
        saved = set(_versioned(root))
        unsaved = [relative for relative in lying if (relative, lying[relative]) not in saved]
        return Drift(changed, added, [relative for relative in unsaved if lying[relative] != named.get(relative)])


def _versioned(root: Path) -> Iterator[tuple[str, str]]:
    """(path, MD5) of every file of every version in the cache whose bytes are there too."""
    for listing in _cache(root).glob("??/*.dir"):
        try:
            entries = [(str(entry["relpath"]), str(entry["md5"])) for entry in json.loads(listing.read_bytes())]
        except (ValueError, KeyError, TypeError):
            continue  # a damaged listing keeps nothing
        yield from ((relative, md5) for relative, md5 in entries if _object(root, md5).is_file())


def _lying(root: Path) -> dict[str, str]:
    """Relative path -> MD5 of every file in `data/` that DVC would version, in the order of its listings."""
    from dvc.fs import LocalFileSystem
    from dvc.ignore import DvcIgnoreFilter

    data, ignored = root.absolute() / "data", DvcIgnoreFilter(LocalFileSystem(), str(root.absolute()))
    found = [Path(folder) / name for folder, _, names in ignored.walk(ignored.fs, str(data)) for name in names]
    return {relative: _digest(data / relative, "md5") for relative in sorted(path.relative_to(data).as_posix() for path in found)}


def _hash_of(files: dict[str, str]) -> str:
    """The hash that DVC gives to a directory with these files."""
    entries = [{"md5": md5, "relpath": relative} for relative, md5 in sorted(files.items())]
    return hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest() + ".dir"


def missing_files(root: Path) -> list[str]:
    """What `data.dvc` names and `data/` lacks, relative to `root`; `data` alone if this clone never pulled the list of its files."""
    if not _object(root, _pointer(root).hash).is_file():
        return ["data"]
    return [f"data/{relative}" for relative in _listing(root) if not (root / "data" / relative).is_file()]


def push(root: Path, remote: str = "") -> None:
    """Copy the snapshot to `remote`, by default the configured one (`local` where that is `seed`).

    Raises:
        DataError: the cache lacks a part of it, the remote cannot be written, or `seed` would exceed its 20 MB.
        ServiceUnreachable: the remote is a server that does not answer.
    """
    remote = remote or next((name for name in _remotes(root) if name != SEED), LOCAL)
    size = _pointer(root).size
    if remote == SEED and size > SEED_LIMIT_BYTES:
        found = f"The snapshot has {size:,} bytes: too many for the seed remote, which is part of the git repository."
        raise DataError(found, f"Expected at most {SEED_LIMIT_BYTES:,}.", f"Push it to {LOCAL}, or to an object store.")
    missing = _missing_objects(root)
    if missing:
        raise DataError(f"The cache lacks {len(missing)} objects of data.dvc: {', '.join(missing[:3])}.", next_step="Type `dvc add data`.")
    _dvc(root, "push", "--remote", remote, "data.dvc")
    if remote == LOCAL:
        _prefer_local(root)


def _prefer_local(root: Path) -> None:
    """Make `local` the default of this clone (in its uncommitted config), so that a plain `dvc pull` finds the new snapshot too."""
    from dvc.config import Config

    if _remotes(root)[0] == SEED:
        with Config(dvc_dir=str(root.absolute() / ".dvc")).edit("local") as config:
            config.setdefault("core", {})["remote"] = LOCAL


def pull(root: Path) -> Snapshot:
    """Bring `data/` to the snapshot that `data.dvc` names, from the default remote, `local` and `seed` in turn; verified.

    Raises:
        DataError: an object is in none of them, a file arrived damaged, or `data/` holds changes that were never versioned.
        ServiceUnreachable: an object is in none of those that answer, and one does not.
    """
    pointer, remotes = _pointer(root), _remotes(root)
    reasons = []
    for remote in remotes:
        reasons.append(_fetch(root, remote))
        missing = _missing_objects(root)
        if not missing:
            break
    else:
        tried = "; ".join(f"{remote} ({reason})" for remote, reason in zip(remotes, reasons, strict=True))
        found = f"{len(missing)} objects of the snapshot {pointer.hash} are missing: {', '.join(missing[:3])}. Tried {tried}."
        if any(is_silence(reason) for reason in reasons):
            raise ServiceUnreachable(found, next_step="See that the remote's server runs and can be reached, then type the same again.")
        next_step = "Check out a commit whose data was pushed, or give it up: type `rm data.dvc`, then `dreamgym collect`."
        raise DataError(found, next_step=next_step)
    _dvc(root, "checkout", "data.dvc")
    verify(root)
    return pointer


def restore(root: Path, digest: str, origin: Path) -> Snapshot:
    """Bring `data/` of `root`, a checkout beside the clone `origin`, to the version `digest`, from the cache and the remotes of `origin`.

    Raises:
        DataError: an object is nowhere, or damaged; what is damaged is named and not used.
    """
    from dvc.config import Config

    with Config(dvc_dir=str(root.absolute() / ".dvc")).edit("local") as config:
        config.setdefault("cache", {})["dir"] = str(_cache(origin.absolute()).parents[1])
        for name, remote in _config(origin).get("remote", {}).items():
            config.setdefault("remote", {})[name] = {"url": str(remote["url"])}
    _point(root, digest, 0, 0)
    for remote in _remotes(root) if _missing_objects(root) else ():
        _fetch(root, remote)
    if not _missing_objects(root):
        files = _listing(root).values()
        _point(root, digest, sum(_object(root, entry).stat().st_size for entry in files), len(files))
    return pull(root)


def _point(root: Path, digest: str, size: int, files: int) -> None:
    out = {"md5": digest, "size": size, "nfiles": files, "hash": "md5", "path": "data"}
    (root / "data.dvc").write_text(yaml.safe_dump({"outs": [out]}, sort_keys=False), encoding="utf-8")


def verify(root: Path) -> None:
    """Compare every file of `data/` with the hashes of `data.dvc`, byte by byte. Raises DataError naming the first that differs."""
    for relative, digest in _listing(root).items():
        path = root / "data" / relative
        if not path.is_file():
            raise DataError(f"{path} is missing.", f"data.dvc names it ({digest}).", "Type `dvc checkout data.dvc`.")
        if _digest(path, "md5") != digest:
            raise _differs(root, path, digest)
    status = json.loads(_dvc(root, "status", "--json", "data.dvc") or "{}")
    if status:
        raise DataError(f"data/ differs from data.dvc: {json.dumps(status)}.", next_step="Type `dvc add data` to keep it as a new version.")


def save_experiment(root: Path, name: str, record: Sequence[Path] = ()) -> str:
    """Save the workspace, `data.dvc` and the files of `record` included, as the DVC experiment `name` and return its commit.

    Branch and index stay. One of the same name on the same commit is replaced. Raises DataError without a git commit to base it on.
    """
    init_if_needed(root)
    head = _git(root, "rev-parse", "--verify", "HEAD")
    if not head:
        found = f"{root.absolute()} has no git commit to base an experiment on."
        raise DataError(found, next_step='Type `git add -A && git commit -m "Start"`, then the same again.')
    wanted = [str(path.resolve().relative_to(root.resolve())) for path in record]
    if not _git(root, "ls-files", "data.dvc") and (root / "data.dvc").exists():
        wanted.append("data.dvc")
    _dvc(root, "exp", "save", "--name", name, "--force", *(f"--include-untracked={path}" for path in wanted))
    commit = _git(root, "rev-parse", "--verify", f"refs/exps/{head[:2]}/{head[2:]}/{name}")
    if not commit:
        raise DataError(f"DVC left no experiment {name!r} on {head}.", next_step=f"Type `dvc exp save -n {name} --force` to see why.")
    return commit


def tree_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a directory's sorted relative paths and their contents (`__pycache__` left out).

    Neither time stamps nor the place matter. Raises DataError if `path` does not exist.
    """
    if path.is_file():
        return _digest(path, "sha256")
    if not path.is_dir():
        raise DataError(f"There is no {path} to hash.", next_step="Type `dvc pull`, or run the stage that makes it again.")
    files = {str(file.relative_to(path).as_posix()): file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    total = hashlib.sha256()
    for relative in sorted(files):
        total.update(f"{relative}\0{_digest(files[relative], 'sha256')}\n".encode())
    return total.hexdigest()


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _differs(root: Path, path: Path, digest: str) -> DataError:
    cached = _object(root, digest)
    if cached.is_file() and _digest(cached, "md5") != digest:
        found = f"{path} is damaged, because its cache object {cached} is."
        return DataError(found, f"Expected the MD5 {digest}.", f"Type `rm -f {cached} {path}`, then `dvc pull`.")
    found = f"{path} was changed after its snapshot."
    return DataError(found, f"Expected the MD5 {digest}.", "Type `dvc checkout --force data.dvc` to undo it, or `dvc add data` to keep it.")


def _pointer(root: Path) -> Snapshot:
    path = root / "data.dvc"
    if not path.is_file():
        raise DataError(f"There is no {path}.", "It names the version of data/.", "Type `git checkout data.dvc`, or `dreamgym collect`.")
    try:
        out = yaml.safe_load(read_text(path))["outs"][0]
        found = Snapshot(out["md5"], out["nfiles"], out["size"])
        if not re.fullmatch(r"[0-9a-f]{32}\.dir", found.hash) or not all(type(n) is int and n >= 0 for n in (found.files, found.size)):
            raise ValueError(out)
        return found
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        problem = f"{path} is no pointer to a directory's version ({type(error).__name__})."
        raise DataError(problem, next_step="Type `git checkout data.dvc`.") from None


def _listing(root: Path) -> dict[str, str]:
    """Relative path -> MD5 of every file of the snapshot, from the cached listing, whose own bytes are checked."""
    digest = _pointer(root).hash
    path = _object(root, digest)
    if not path.is_file() or _digest(path, "md5") + ".dir" != digest:
        found = f"The listing {path} of the snapshot {digest} is {'damaged' if path.is_file() else 'missing'}."
        raise DataError(found, next_step=f"Type `rm -f {path}`, then `dvc pull`.")
    found_files = {str(entry["relpath"]): str(entry["md5"]) for entry in json.loads(read_text(path))}
    for relative, md5 in found_files.items():
        _require_inside(digest, relative, md5)
    return found_files


def _require_inside(digest: str, relative: str, md5: str) -> None:
    """DVC writes a file wherever the listing says: one of a stranger's must not lead out of data/ or of the cache."""
    parts = relative.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not re.fullmatch(r"[0-9a-f]{32}", md5):
        found = f"The snapshot {digest} names the file {relative!r} with the hash {md5!r}."
        raise DataError(found, "Expected a path below data/ and an MD5.", "Type `git checkout data.dvc` to go back.")


def _missing_objects(root: Path) -> list[str]:
    digest = _pointer(root).hash
    if not _object(root, digest).is_file():
        return [digest]
    cache = _cache(root)
    return sorted({entry for entry in _listing(root).values() if not (cache / entry[:2] / entry[2:]).is_file()})


def _object(root: Path, digest: str) -> Path:
    return _cache(root) / digest[:2] / digest[2:]


def _config(root: Path) -> dict[str, dict]:
    from dvc.config import Config

    if not (root / ".dvc" / "config").is_file():
        next_step = "Type `git checkout .dvc`, or `rm -f data.dvc` and then `dreamgym collect`, which sets DVC up."
        raise DataError(f"{root.absolute()} is not under DVC.", next_step=next_step)
    return dict(Config(dvc_dir=str(root.absolute() / ".dvc")))


def _cache(root: Path) -> Path:
    """Directory of the cached objects, named by their MD5."""
    folder = _config(root).get("cache", {}).get("dir") or root.absolute() / ".dvc" / "cache"
    return Path(folder) / "files" / "md5"


def _remotes(root: Path) -> list[str]:
    """The default remote, `local` and `seed`, each once."""
    config = _config(root)
    names = dict.fromkeys([config.get("core", {}).get("remote", SEED), LOCAL, SEED])
    return [name for name in names if name in config.get("remote", {})]


def _fetch(root: Path, remote: str) -> str:
    """Fetch what `remote` has of the snapshot; the reason if DVC refuses. What counts is what then lies in the cache."""
    done = run_dvc(root, "fetch", "--remote", remote, "data.dvc")
    if disk_is_full(done.stderr):
        raise failed(root, "fetch", done.stderr)
    if done.returncode:
        return reason_of(done.stderr)
    return _silence(str(_config(root).get("remote", {})[remote]["url"])) or "not there"


def _silence(url: str) -> str:
    """Why nobody answers at the address of a remote; empty if somebody does, or if it is none of HTTP: DVC tells of the others itself."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        return ""
    try:
        socket.create_connection((address.hostname, address.port or (443 if address.scheme == "https" else 80)), timeout=10).close()
    except OSError as error:
        return f"cannot connect to {address.hostname}: {error}"
    return ""


def _git(root: Path, *arguments: str) -> str:
    """What git prints; empty if it refuses."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()


def _dvc(root: Path, *arguments: str) -> str:
    """What one DVC command prints on stdout. Raises DataError with DVC's reason if it fails."""
    done = run_dvc(root, *arguments)
    if done.returncode:
        raise failed(root, " ".join(arguments), done.stderr, _pointer(root).size if arguments[0] == "checkout" else 0)
    return done.stdout
