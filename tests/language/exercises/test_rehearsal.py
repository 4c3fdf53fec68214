"""The mixture of exercises: the requested number of tokens of each requested kind."""

from builders import VOCABULARY

from components.language.exercises.rehearsal import NUMBERS, rehearsal_examples


def tokens(lists, copied, recalled=0, **options):
    return sum(map(len, rehearsal_examples(VOCABULARY, lists, copied, recalled, 0, **options)))


def test_the_token_counts_are_as_requested():
    assert rehearsal_examples(VOCABULARY, 0, 0, 0, 0) == []
    assert 20_000 <= tokens(10_000, 0, numbers=False) <= 21_500
    assert 20_000 * (1 + 1 / (2 * NUMBERS)) <= tokens(10_000, 0) <= 24_500
    assert 10_000 <= tokens(0, 10_000) <= 10_200 and 10_000 <= tokens(0, 0, 10_000) <= 10_700


def test_the_same_seed_gives_the_same_examples():
    mixtures = [
        [e.segments[0].tokens for e in rehearsal_examples(VOCABULARY, 900, 900, 900, seed)]
        for seed in (0, 0, 1)
    ]
    assert mixtures[0] == mixtures[1] != mixtures[2]
