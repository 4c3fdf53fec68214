"""Rejection-sampling fine-tuning: the policy learns its own successes by heart, each time anew from where it
began.

    E: play; keep the successes.
    M: theta = argmax sum over kept episodes of log pi_theta(what was written | what was read), started at
    theta_0.

    dreamgym retrain synthetic_rl.algorithm=rft

That is expert iteration without a search, as ReST-EM has it (Singh et al. 2023, arXiv 2312.06585, Alg. 1);
RAFT (Dong et al. 2023, arXiv 2304.06767) and STaR (Zelikman et al. 2022, arXiv 2203.14465) are the same idea.
Each M-step is a supervised training of its own: from the first policy's weights, at a rate that rises over
its first steps and falls to zero, so that what one iteration unlearnt does not stay unlearnt.

Deviations:
1. Successes of earlier iterations are kept beside the newest (ReST-EM drops them): a small policy wins each
   task in few ways.
2. At most `most` different successes a task are kept, the newest, so that easy tasks do not crowd out the
   others.
3. A reply that left the state as it was is read but not learnt: episodes that were won in spite of it would
   teach it.
4. theta_0 is the policy that training began with, the clone, not the model that it was cloned from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from components.config.training_config import RLConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithm import Lesson, Written
from components.policy.rl.surrogate import mean_shares
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

Kept = dict[tuple[int, ...], Rollout]
"""The successes of one task by what was read and written in them, the newest last."""


class RFT:
    """See the module. `kept` holds the successes of each task by its id."""

    wants_hidden = False
    anew = True
    figures: tuple[str, ...] = ()

    def __init__(self, config: RLConfig) -> None:
        self.config = config
        self.kept: dict[str, Kept] = {}

    def acting(self, policy: Policy, iteration: int) -> Policy:
        """The policy itself."""
        return policy

    def lessons(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[Lesson]:
        """All that is kept, with what is won here."""
        for rollout in (rollout for group in groups for rollout in group if rollout.reward > 0.5):
            self._keep(rollout)
        return [_lesson(rollout) for kept in self.kept.values() for rollout in kept.values()]

    def _keep(self, rollout: Rollout) -> None:
        """Add a success; the oldest of its task leave where there are too many."""
        kept = self.kept.setdefault(rollout.trajectory.task.id, {})
        tokens = tuple(token for segment in rollout.example.segments for token in segment.tokens)
        kept.pop(tokens, None)
        kept[tokens] = rollout
        while len(kept) > self.config.rft.most:
            del kept[next(iter(kept))]

    def shares(self, lessons: Sequence[Lesson]) -> list[float]:
        """All tokens count alike."""
        return mean_shares([lesson.written for lesson in lessons], "token")

    def loss(self, written: Written) -> tuple[Tensor, dict[str, float]]:
        """-log pi of what was written, but for idle replies."""
        return -(written.logprobs * written.targets["weight"] * written.shares).sum(), {}

    def parameters(self) -> list[Any]:
        """None."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What is kept, by task: each episode's segments, the sampler's log-probabilities and which replies
        were idle.
        """
        return {name: [_packed(rollout) for rollout in kept.values()] for name, kept in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.kept = {}
        for name, entries in state.items():
            for entry in entries:
                self._keep(_unpacked(name, entry))


def _lesson(rollout: Rollout) -> Lesson:
    weights = [0.0 if idle else 1.0 for idle in rollout.idle]
    return Lesson(
        (rollout,),
        {
            "weight": [
                weight for weight, length in zip(weights, rollout.replies, strict=True) for _ in range(length)
            ]
        },
    )


def _packed(rollout: Rollout) -> dict[str, Any]:
    segments = [(segment.tokens, segment.loss) for segment in rollout.example.segments]
    return {"segments": segments, "logprobs": rollout.logprobs, "idle": rollout.idle}


def _unpacked(name: str, entry: dict[str, Any]) -> Rollout:
    """A rollout of which all is known that teaches; its steps are not."""
    example = Example([Segment(list(tokens), list(loss)) for tokens, loss in entry["segments"]])
    task = Task(id=name, environment="", split="", instruction="", initial_state="")
    return Rollout(Trajectory(task), example, list(entry["logprobs"]), idle=list(entry["idle"]))
