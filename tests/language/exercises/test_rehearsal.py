"""The exercises that are mixed into a text: as many tokens as asked for, of each kind that is asked for."""

from builders import VOCABULARY

from components.language.exercises.rehearsal import NUMBERS, rehearsal_examples


def tokens(lists, copied, recalled=0, **options):
    return sum(map(len, rehearsal_examples(VOCABULARY, lists, copied, recalled, 0, **options)))


def test_as_many_tokens_as_asked_for():
    assert rehearsal_examples(VOCABULARY, 0, 0, 0, 0) == []
    assert 20_000 <= tokens(10_000, 0, numbers=False) <= 21_500
    assert 20_000 * (1 + 1 / (2 * NUMBERS)) <= tokens(10_000, 0) <= 24_500
    assert 10_000 <= tokens(0, 10_000) <= 10_200 and 10_000 <= tokens(0, 0, 10_000) <= 10_700


def test_the_same_seed_rehearses_the_same():
    made = [
        [e.segments[0].tokens for e in rehearsal_examples(VOCABULARY, 900, 900, 900, seed)]
        for seed in (0, 0, 1)
    ]
    assert made[0] == made[1] != made[2]
