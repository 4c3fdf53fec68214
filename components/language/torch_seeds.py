"""Seeds for torch, which takes 64 bits, from integers of any size."""

from __future__ import annotations


def torch_seed(number: int) -> int:
    """`number` where torch takes it as it is, else its lowest 64 bits.

    Seeds of steps and episodes are products of a run's seed, so that those of a large seed have more than 64
    bits.
    """
    return number if -(2**63) <= number < 2**64 else number % 2**64
