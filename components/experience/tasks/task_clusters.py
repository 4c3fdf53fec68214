"""Clusters of tasks by their instructions: the groups of PPO in the curriculum (Eq. 7).

GRPO plays a task several times, so its group is the task. PPO plays a task once: the paper clusters the tasks
with a semantic encoder, and each cluster is a group. It names neither the encoder nor the method. Here they
are the encoder of the retrieval, and k-means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.vq import kmeans2

from components.experience.retrieval.encoders import Encoder
from components.records import Task


def cluster_tasks(tasks: Sequence[Task], encoder: Encoder, count: int, seed: int) -> list[int]:
    """The number of each task's cluster, from 0 to below `count`; the same for the same arguments."""
    vectors = encoder([task.instruction for task in tasks]).astype(np.float64)
    different, numbers = np.unique(vectors, axis=0, return_inverse=True)
    if len(different) <= count:
        return [int(number) for number in numbers.ravel()]
    _, numbers = kmeans2(vectors, count, minit="++", missing="warn", rng=np.random.default_rng(seed))
    return [int(number) for number in numbers]
