"""Whether further samples agree with an answer: a check that needs no rule and no probability.

Right answers are said alike again, wrong ones differently, as far as the model's errors are not systematic
(SelfCheckGPT, arXiv 2303.08896, for sentences). Here a sample agrees if next state, reward and end are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from components.experience.formats.world_format import Answer

Sample = Callable[[list[int], int], list[Answer | None]]
"""(rows, number of the sample) -> a further answer of each; None where it does not parse."""


def disagreeing_rows(answers: Mapping[int, Answer], samples: int, sample: Sample) -> set[int]:
    """Return the rows of which a further answer differs. A row that differs is not sampled again.

    Args:
        answers: row -> the answer that the samples are compared with.
        samples: of each row.
    """
    disagreeing: set[int] = set()
    for number in range(1, samples + 1):
        rows = [row for row in answers if row not in disagreeing]
        further = sample(rows, number) if rows else []
        disagreeing |= {
            row
            for row, answer in zip(rows, further, strict=True)
            if answer is None or not answers[row].has_outcome_of(answer)
        }
    return disagreeing
