"""Check that runs have different policies: a copy that is counted as another run inflates n.

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
from components.tracking.stage_store.stage_result import RECORD

POLICY_STAGES = {"cloned": "clone", "dreamed": "synthetic_rl", "refined": "sim_to_real", "real": "real_rl"}
"""Name of a policy -> the stage that makes it, in the order of the pipeline."""


@dataclass(frozen=True)
class PolicyIdentity:
    """Key of the stage that made a policy, and hash of its files (empty if they are not in this clone)."""

    key: str
    content: str

    def same_as(self, other: PolicyIdentity) -> bool:
        """True if both are the same policy."""
        return self.key == other.key or bool(self.content) and self.content == other.content


def policies_of(manifest: Manifest, stages: Path) -> dict[str, PolicyIdentity]:
    """The policies that a run made or reused, by name.

    Args:
        stages: directory of finished stages.
    """
    stage_keys = {stage.name: stage.key for stage in manifest.stages}
    policy_keys = {name: stage_keys[stage] for name, stage in POLICY_STAGES.items() if stage in stage_keys}
    return {
        name: PolicyIdentity(key, _content_hash(stages / f"{POLICY_STAGES[name]}-{key[:12]}", key))
        for name, key in policy_keys.items()
    }


def _content_hash(directory: Path, key: str) -> str:
    try:
        record = json.loads(read_text(directory / RECORD))
        return str(record["output_hashes"]["policy"]) if record["key"] == key else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def distinct_runs(directories: Sequence[Path]) -> dict[str, Manifest]:
    """The manifests by run.

    Raises:
        DataError: a run is named twice, for example by its id and as `latest`, or a manifest is damaged.
    """
    names = [directory.name for directory in directories]
    repeated = next((name for name in names if names.count(name) > 1), "")
    if repeated:
        raise DataError(
            f"The run {repeated} is named twice.", "Expected different runs.", "Name each run once."
        )
    return {directory.name: Manifest.load(directory) for directory in directories}


def require_different_policies(runs: Mapping[str, Manifest], stages: Path, *, last: bool = False) -> None:
    """Refuse runs of which two have a policy in common.

    Args:
        stages: directory of finished stages.
        last: True if only the last policy of each run counts.

    Raises:
        DataError: two runs have the same policy.
    """
    policies = {name: policies_of(manifest, stages) for name, manifest in runs.items()}
    for one, other in combinations(policies, 2):
        shared = [
            name
            for name, policy in policies[one].items()
            if name in policies[other] and policy.same_as(policies[other][name])
        ]
        final = list(policies[one])[-1:]
        if shared and (not last or shared[-1:] == final == list(policies[other])[-1:]):
            policy = policies[one][shared[-1]]
            identity = f"content hash {policy.content}" if policy.content else f"stage key {policy.key}"
            problem = (
                f"The runs {one} and {other} are one policy: both have the same {' and '.join(shared)} "
                f"policy ({identity})."
            )
            next_step = "Leave one of them out, or train another: dreamgym retrain seed=N"
            raise DataError(problem, "Expected runs that were trained separately.", next_step)
