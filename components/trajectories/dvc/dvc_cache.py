"""Read DVC's settings and cache of a repository: remotes, cached objects, and the files of a version.

Every level of DVC's config counts: system, global, project and local. A remote or a shared cache may be set
at any level.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.files import read_text
from components.trajectories.dvc.pointer import DATA, POINTER, Out

LOCAL = "local"
SEED = "seed"


def file_digest(path: Path, algorithm: str = "md5") -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def listing_hash(files: dict[str, str]) -> str:
    """The hash that DVC gives to a directory with these files (relative path -> MD5)."""
    entries = [{"md5": md5, "relpath": relative} for relative, md5 in sorted(files.items())]
    return hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest() + ".dir"


def dvc_config(root: Path) -> dict[str, Any]:
    """DVC's settings for a command in `root`.

    Raises:
        DataError: `root` is not under DVC, or a config file is invalid.
    """
    from dvc.config import Config, ConfigError

    if not (root / ".dvc" / "config").is_file():
        next_step = "Type `git checkout .dvc`; in a repository of your own, `dvc init`."
        raise DataError(f"{root.absolute()} is not under DVC.", next_step=next_step)
    try:
        return dict(Config(dvc_dir=str(root.absolute() / ".dvc")))
    except ConfigError as error:
        raise DataError(
            f"DVC's settings cannot be read: {error}.",
            next_step="Type `dvc config --list` and correct the setting that it names.",
        ) from None


def write_dvc_config(path: Path, sections: Mapping[str, Any]) -> None:
    """Write a config file of DVC that only its owner can read.

    DVC's own writer is not used, because it refuses paths with characters outside ASCII.

    Args:
        sections: in the form of `dvc_config`; `remote`, `db` and `machine` have one section per name.
    """
    from configobj import ConfigObj

    file = ConfigObj(encoding="utf-8")
    for section, values in sections.items():
        if section in ("remote", "db", "machine"):
            titled = {f'{section} "{name}"': options for name, options in values.items()}
        else:
            titled = {section: values}
        for title, options in titled.items():
            file[title] = {key: str(value) for key, value in options.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("wb") as target:
        file.write(target)


def cache_directory(root: Path) -> Path:
    """Directory of the cached objects, in the shared cache if one is configured."""
    folder = dvc_config(root).get("cache", {}).get("dir") or root.absolute() / ".dvc" / "cache"
    return Path(folder) / "files" / "md5"


def default_remote(root: Path) -> str:
    """The remote of a plain `dvc push`; empty if none is set."""
    return str(dvc_config(root).get("core", {}).get("remote", ""))


def remote_names(root: Path) -> list[str]:
    """All configured remotes: the default first, the two of this project last."""
    config = dvc_config(root)
    remotes = config.get("remote", {})
    others = [name for name in remotes if name not in (LOCAL, SEED)]
    names = dict.fromkeys([config.get("core", {}).get("remote", SEED), *others, LOCAL, SEED])
    return [name for name in names if name in remotes]


def remote_to_push_to(root: Path) -> str:
    """The remote for new versions: the default remote, else `local`, else the first other one.

    The default is not used if it is `seed`, which is part of the git repository.
    """
    names = remote_names(root)
    default = default_remote(root)
    if default in names and default != SEED:
        return default
    return LOCAL if LOCAL in names else next((name for name in names if name != SEED), LOCAL)


def object_path(cache: Path, digest: str) -> Path:
    """Path of an object in the cache."""
    return cache / digest[:2] / digest[2:]


def read_listing(cache: Path, digest: str) -> dict[str, str]:
    """Relative path -> MD5 of the files of a directory's version.

    Raises:
        DataError: the cached listing is missing or damaged.
    """
    path = object_path(cache, digest)
    if not path.is_file():
        raise DataError(
            f"The listing {path} of the snapshot {digest} is missing.", next_step="Type `dreamgym data pull`."
        )
    if file_digest(path) + ".dir" != digest:
        raise DataError(
            f"The listing {path} of the snapshot {digest} is damaged.",
            next_step=f"Type `rm -f {path}`, then `dreamgym data pull`.",
        )
    files = {str(entry["relpath"]): str(entry["md5"]) for entry in json.loads(read_text(path))}
    for relative, md5 in files.items():
        _require_inside(digest, relative, md5)
    return files


def _require_inside(digest: str, relative: str, md5: str) -> None:
    """Refuse a path that leads out of data/ or out of the cache: DVC writes files wherever a listing says."""
    parts = relative.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not re.fullmatch(r"[0-9a-f]{32}", md5):
        raise DataError(
            f"The snapshot {digest} names the file {relative!r} with the hash {md5!r}.",
            f"Expected a path below {DATA}/ and an MD5.",
            f"Type `git checkout {POINTER}` to go back.",
        )


def files_of(cache: Path, outs: Iterable[Out]) -> dict[str, str]:
    """Path below `data/` -> MD5 of every file of a version.

    Raises:
        DataError: a cached listing is missing or damaged.
    """
    files: dict[str, str] = {}
    for out in outs:
        listing = {"": out.md5} if not out.is_directory else read_listing(cache, out.md5)
        files |= {out.file_path(name): md5 for name, md5 in listing.items()}
    return files


def missing_objects(cache: Path, outs: Sequence[Out]) -> list[str]:
    """Hashes of the version's objects that the cache lacks.

    For a directory without a cached listing it is only the hash of the listing.
    """
    listed = [out for out in outs if not out.is_directory or object_path(cache, out.md5).is_file()]
    unlisted = {out.md5 for out in outs if out not in listed}
    return sorted(
        unlisted | {md5 for md5 in files_of(cache, listed).values() if not object_path(cache, md5).is_file()}
    )


def size_in_cache(cache: Path, out: Out) -> tuple[int, int]:
    """(bytes, number of files) of a part whose objects are all cached."""
    files = [out.md5] if not out.is_directory else list(read_listing(cache, out.md5).values())
    return sum(object_path(cache, md5).stat().st_size for md5 in files), len(files)
