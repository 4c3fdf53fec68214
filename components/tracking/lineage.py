"""Where a policy comes from: stage by stage back to the trajectories and the commit, from the manifests under
`runs/`.

Each stage of the chain names its key and the run that made it, which for a reused stage is an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from components.errors import DataError
from components.tracking.data_parts import backbone_path, files_of_part, part_hashes, world_of
from components.tracking.manifest import Manifest, StageEntry
from components.tracking.runs import list_runs
from components.trajectories.dvc.pointer import DATA

MADE_OF = {
    "sim_to_real": ("synthetic_rl",),
    "real_rl": ("clone",),
    "synthetic_rl": ("experience_model", "clone"),
    "clone": ("validate",),
    "experience_model": ("validate",),
    "validate": (),
}
"""Stage -> the stages whose outputs it is made of."""
FINE_TUNED = ("experience_model", "clone")
"""Stages that start from a backbone."""
CALLED = {
    "sim_to_real": "refined policy",
    "real_rl": "policy trained in reality",
    "synthetic_rl": "dreamed policy and replay buffer",
    "clone": "cloned policy",
    "experience_model": "experience model",
    "validate": "checked trajectories",
}


@dataclass(frozen=True)
class Ancestor:
    """One link: what it is, what names it, where it was made, and what it was made of."""

    name: str
    key: str
    run_id: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    parents: tuple[Ancestor, ...] = ()


def lineage(runs: Path, stage: str, key: str) -> Ancestor:
    """The ancestors of what `stage` with (the beginning of) `key` made.

    Raises:
        DataError: no run under `runs` names that stage.
    """
    manifests = [manifest for manifest in map(_read, _directories(runs)) if manifest]
    holding = [run for run in manifests if _entry(run, stage, key)]
    if not holding:
        raise DataError(
            f"No run under {runs} has a stage {stage} with the key {key}.",
            next_step="Name a policy that a run here made.",
        )
    return _ancestor(holding[-1], stage, manifests, runs.parent)


def _directories(runs: Path) -> list[Path]:
    return [runs / name for name in list_runs(runs)]


def _read(directory: Path) -> Manifest | None:
    """The manifest, or None of a run that has none or a damaged one: the others still tell their part."""
    try:
        return Manifest.load(directory)
    except DataError:
        return None


def _entry(run: Manifest, stage: str, key: str = "") -> StageEntry | None:
    return next((entry for entry in run.stages if entry.name == stage and entry.key.startswith(key)), None)


def _ancestor(run: Manifest, stage: str, manifests: list[Manifest], root: Path) -> Ancestor:
    entry = _entry(run, stage)
    if entry is None:
        return Ancestor(CALLED.get(stage, stage), "not in this run", run.run_id)
    maker = next(
        (other for other in manifests if (own := _entry(other, stage, entry.key)) and not own.reused), run
    )
    parents = tuple(
        _ancestor(run, parent, manifests, root) for parent in MADE_OF.get(stage, ()) if _entry(run, parent)
    )
    parents = (parents or (_trajectories(maker, root),)) + _backbone(maker, stage, root)
    return Ancestor(CALLED.get(stage, stage), entry.key, maker.run_id, _facts(maker, run, stage), parents)


def _facts(maker: Manifest, run: Manifest, stage: str) -> dict[str, str]:
    facts = {"commit": _commit(maker)}
    if stage == "synthetic_rl" and run.data.dvc_out:
        replay = f"{DATA}/{world_of(run)}/replay"
        own = run.data.parts_out.get(replay)
        facts["replay buffer"] = f"{replay} {own}" if own else f"data {run.data.dvc_out}"
    return facts


def _commit(run: Manifest) -> str:
    git = run.environment.git
    return git.commit + (f" with changes ({git.diff_path or 'not kept'})" if git.dirty else "")


def _trajectories(maker: Manifest, root: Path) -> Ancestor:
    """The offline trajectories of the run's world, with the hash of each file, and the whole version that
    they are a part of.
    """
    path = f"{DATA}/{world_of(maker)}/trajectories"
    digest = part_hashes(maker.data, root).get(path)
    if not digest:
        return Ancestor("trajectories", maker.data.dvc_in, maker.run_id, {"commit": _commit(maker)})
    files = {f"{path}/{name}": md5 for name, md5 in sorted(files_of_part(root, digest).items())}
    return Ancestor(
        "trajectories",
        digest,
        maker.run_id,
        {**files, "version of data/": maker.data.dvc_in, "commit": _commit(maker)},
    )


def _backbone(maker: Manifest, stage: str, root: Path) -> tuple[Ancestor, ...]:
    """The backbone that a fine-tuned model starts from, if it is a part of `data/`."""
    if stage not in FINE_TUNED:
        return ()
    path = backbone_path(maker, experience=stage == "experience_model")
    digest = part_hashes(maker.data, root).get(path)
    return (Ancestor("backbone", digest, "", {"path": path}),) if digest else ()
