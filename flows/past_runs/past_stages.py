"""Finds the finished stages of a past run, which a further run goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.errors import DataError
from components.tracking.manifest import Manifest
from components.tracking.stage_store.stage_result import StageResult
from components.tracking.stage_store.stage_store import StageStore


def past_stages(root: Path, manifest: Manifest, names: Sequence[str]) -> list[StageResult]:
    """Return the results of a run's stages.

    Args:
        root: of the repository.
        names: of the stages, all of which the run has.

    Raises:
        DataError: one is gone or damaged.
    """
    keys = {stage.name: stage.key for stage in manifest.stages}
    store = StageStore(root / ".dreamgym" / "stages")
    results = {name: store.find(name, keys[name]) for name in names}
    missing = [name for name, result in results.items() if result is None]
    if missing:
        raise DataError(
            f"The stage {missing[0]} of run {manifest.run_id} is not in {root / '.dreamgym' / 'stages'}.",
            "Expected its result, undamaged.",
            f"Make it again: dreamgym retrain --config runs/{manifest.run_id}/config.json, then name that "
            "run.",
        )
    return [result for result in results.values() if result is not None]
