"""Seeds for torch, which takes 64 bits, from integers of any size."""

from __future__ import annotations


def torch_seed(number: int) -> int:
    """`number` if it fits into 64 bits, else its lowest 64 bits.

    Seeds of steps and episodes are products of the run's seed, so a large seed leads to more than 64 bits.
    """
    return number if -(2**63) <= number < 2**64 else number % 2**64
