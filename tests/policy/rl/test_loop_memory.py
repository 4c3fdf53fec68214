"""Freed memory is returned during an iteration, not at its end alone: passes of many shapes pile up."""

from loop_builders import Rewarding, even_rows, make_loop

from components.language import freed_memory
from components.language.engines.kept_cache_session import KeptCacheSession
from components.policy.rl.step_gradient import StepGradient


def test_memory_is_looked_at_after_every_generation_and_every_pass(monkeypatch):
    looks, counts = [], {"generations": 0, "passes": 0}
    monkeypatch.setattr(freed_memory._KEPT, "return_if_grown", lambda: looks.append(True))

    def counted(kind, method, name):
        def call(*args, **options):
            counts[name] += 1
            return method(*args, **options)

        monkeypatch.setattr(kind, method.__name__, call)

    counted(KeptCacheSession, KeptCacheSession.generate, "generations")
    counted(StepGradient, StepGradient.add_samples, "passes")
    make_loop(Rewarding(even_rows), iterations=2, batch_tokens=64).run()
    assert counts["generations"] >= 2 and counts["passes"] > 2
    assert len(looks) >= counts["generations"] + counts["passes"]
