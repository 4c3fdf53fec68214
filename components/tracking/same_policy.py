"""Are the policies of two runs the same one? A copy counted as another run makes an n that is not there.

Two policies are the same if the same stage made them (equal keys), or if their files have the same content
hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from components.errors import DataError
from components.files import read_text
from components.tracking.manifest import Manifest
from components.tracking.stage_store.stage_store import RECORD

POLICY_STAGES = {"cloned": "clone", "dreamed": "synthetic_rl", "refined": "sim_to_real", "real": "real_rl"}
"""What a policy is called -> the stage that makes it, the last one last."""


@dataclass(frozen=True)
class MadePolicy:
    """The key of the stage that made a policy, and the hash of its files; empty if they are not here."""

    key: str
    content: str

    def same_as(self, other: MadePolicy) -> bool:
        """True if both are one policy."""
        return self.key == other.key or bool(self.content) and self.content == other.content


def policies_of(manifest: Manifest, stages: Path) -> dict[str, MadePolicy]:
    """The policies that a run made or reused, by name. Args: stages: the directory of finished stages."""
    keys = {stage.name: stage.key for stage in manifest.stages}
    made = {name: keys[stage] for name, stage in POLICY_STAGES.items() if stage in keys}
    return {
        name: MadePolicy(key, _content(stages / f"{POLICY_STAGES[name]}-{key[:12]}", key))
        for name, key in made.items()
    }


def _content(directory: Path, key: str) -> str:
    try:
        record = json.loads(read_text(directory / RECORD))
        return str(record["output_hashes"]["policy"]) if record["key"] == key else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def distinct_runs(directories: Sequence[Path]) -> dict[str, Manifest]:
    """The manifests by run. Raises DataError if a run is named twice, as by its id and as `latest`, or a
    manifest is damaged.
    """
    names = [directory.name for directory in directories]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise DataError(f"The run {twice} is named twice.", "Expected different runs.", "Name each run once.")
    return {directory.name: Manifest.load(directory) for directory in directories}


def require_different_policies(runs: Mapping[str, Manifest], stages: Path, *, last: bool = False) -> None:
    """Refuse runs of which two have a policy in common. Args: last: only the last policy of each run counts.

    Raises:
        DataError: two of them are one policy.
    """
    policies = {name: policies_of(manifest, stages) for name, manifest in runs.items()}
    for one, other in combinations(policies, 2):
        shared = [
            name
            for name, made in policies[one].items()
            if name in policies[other] and made.same_as(policies[other][name])
        ]
        final = list(policies[one])[-1:]
        if shared and (not last or shared[-1:] == final == list(policies[other])[-1:]):
            made = policies[one][shared[-1]]
            content = f"content hash {made.content}" if made.content else f"stage key {made.key}"
            found = (
                f"The runs {one} and {other} are one policy: both have the same {' and '.join(shared)} "
                f"policy ({content})."
            )
            next_step = "Leave one of them out, or train another: dreamgym retrain seed=N"
            raise DataError(found, "Expected runs that were trained apart.", next_step)
