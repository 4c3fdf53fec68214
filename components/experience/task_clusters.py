"""Tasks in clusters by what they say: with PPO the group whose return variance the curriculum sees (Eq. 7).

GRPO plays a task several times, so its group is the task. PPO plays it once, and the paper clusters the tasks
with a semantic encoder and takes each cluster as a group; it names neither the encoder nor the method: ours
are the retrieval's encoder and k-means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from components.experience.retrieval.encoders import Encoder
from components.records import Task


def cluster_tasks(tasks: Sequence[Task], encoder: Encoder, count: int, seed: int) -> list[int]:
    """The number of each task's cluster, of at most `count`; the same for the same arguments."""
    vectors = encoder([task.instruction for task in tasks]).astype(np.float64)
    different = len(np.unique(vectors, axis=0))
    if different <= count:
        return [int(number) for number in np.unique(vectors, axis=0, return_inverse=True)[1].ravel()]
    _, numbers = kmeans2(vectors, count, minit="++", missing="warn", rng=np.random.default_rng(seed))
    return [int(number) for number in numbers]
