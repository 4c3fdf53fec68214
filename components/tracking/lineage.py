"""Lineage of a policy: its stages back to the trajectories and the commit, from the manifests under `runs/`.

Each stage of the chain names its key and the run that computed it. For a reused stage that is an earlier run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from components.errors import DataError
from components.tracking.data_parts import backbone_path, environment_name, files_of_part, part_hashes
from components.tracking.manifest import Manifest, StageEntry
from components.tracking.runs import list_runs
from components.trajectories.dvc.pointer import DATA

PARENT_STAGES = {
    "sim_to_real": ("synthetic_rl",),
    "real_rl": ("clone",),
    "logged_rl": ("clone",),
    "synthetic_rl": ("experience_model", "clone"),
    "clone": ("validate",),
    "experience_model": ("validate",),
    "validate": (),
}
"""Stage -> the stages whose outputs it uses."""
EARLIER_STAGES = {
    "synthetic_rl": ("sim_to_real",),
    "experience_model": ("experience_model", "sim_to_real"),
}
"""Stage of a further round -> the stages of the round before whose outputs it uses."""
FINE_TUNED_STAGES = ("experience_model", "clone")
"""Stages that start from a backbone."""
OUTPUT_NAMES = {
    "sim_to_real": "refined policy",
    "real_rl": "policy trained in reality",
    "logged_rl": "policy trained on pairs of logged episodes",
    "synthetic_rl": "dreamed policy and replay buffer",
    "clone": "cloned policy",
    "experience_model": "experience model",
    "validate": "checked trajectories",
}


@dataclass(frozen=True)
class Ancestor:
    """One element of the chain: its name, key or hash, run, further facts, and its parents."""

    name: str
    key: str
    run_id: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    parents: tuple[Ancestor, ...] = ()


def lineage(runs: Path, stage: str, key: str) -> Ancestor:
    """The output of `stage` with its ancestors.

    Args:
        key: the stage's key, or the beginning of it.

    Raises:
        DataError: no run under `runs` has that stage.
    """
    manifests = [manifest for manifest in map(_load_manifest, _directories(runs)) if manifest]
    runs_with_stage = [run for run in manifests if _entry(run, stage, key)]
    if not runs_with_stage:
        raise DataError(
            f"No run under {runs} has a stage {stage} with the key {key}.",
            next_step="Name a policy that a run of this clone made.",
        )
    return _ancestor(runs_with_stage[-1], stage, manifests, runs.parent)


def _directories(runs: Path) -> list[Path]:
    return [runs / name for name in list_runs(runs)]


def _load_manifest(directory: Path) -> Manifest | None:
    """The manifest of a run, or None if it is missing or damaged."""
    try:
        return Manifest.load(directory)
    except DataError:
        return None


def _entry(run: Manifest, stage: str, key: str = "") -> StageEntry | None:
    return next((entry for entry in run.stages if entry.name == stage and entry.key.startswith(key)), None)


def _ancestor(run: Manifest, stage: str, manifests: list[Manifest], root: Path) -> Ancestor:
    entry = _entry(run, stage)
    if entry is None:
        return Ancestor(OUTPUT_NAMES.get(stage, stage), "not in this run", run.run_id)
    maker = next(
        (
            other
            for other in manifests
            if (other_entry := _entry(other, stage, entry.key)) and not other_entry.reused
        ),
        run,
    )
    earlier_stages = EARLIER_STAGES.get(stage, ()) if run.round > 1 else ()
    parents = tuple(
        _ancestor(run, parent, manifests, root)
        for parent in PARENT_STAGES.get(stage, ())
        if _entry(run, parent) and not (earlier_stages and parent == "clone")
    )
    parents = parents or (_trajectories(maker, root),)
    if earlier_stages:
        parents += _of_the_round_before(run, earlier_stages, manifests, root)
    else:
        parents += _backbone(maker, stage, root)
    return Ancestor(
        OUTPUT_NAMES.get(stage, stage), entry.key, maker.run_id, _facts(maker, run, stage), parents
    )


def _of_the_round_before(
    run: Manifest, stages: tuple[str, ...], manifests: list[Manifest], root: Path
) -> tuple[Ancestor, ...]:
    """The outputs of the run's round before that a stage starts from."""
    earlier = next((other for other in manifests if other.run_id == run.continues), None)
    if earlier is None:
        return tuple(Ancestor(OUTPUT_NAMES[stage], "its run is not here", run.continues) for stage in stages)
    return tuple(_ancestor(earlier, stage, manifests, root) for stage in stages)


def _facts(maker: Manifest, run: Manifest, stage: str) -> dict[str, str]:
    facts = {"commit": _commit(maker)}
    if stage == "synthetic_rl" and run.data.dvc_out:
        replay = f"{DATA}/{environment_name(run)}/replay"
        replay_hash = run.data.parts_out.get(replay)
        facts["replay buffer"] = f"{replay} {replay_hash}" if replay_hash else f"data {run.data.dvc_out}"
    return facts


def _commit(run: Manifest) -> str:
    git = run.environment.git
    return git.commit + (f" with changes ({git.diff_path or 'not kept'})" if git.dirty else "")


def _trajectories(maker: Manifest, root: Path) -> Ancestor:
    """Offline trajectories of the run's environment: their hash, each file's hash, and the data version."""
    path = f"{DATA}/{environment_name(maker)}/trajectories"
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
    """The backbone that a fine-tuned model starts from, if `data/` has it."""
    if stage not in FINE_TUNED_STAGES:
        return ()
    path = backbone_path(maker, experience=stage == "experience_model")
    digest = part_hashes(maker.data, root).get(path)
    return (Ancestor("backbone", digest, "", {"path": path}),) if digest else ()
