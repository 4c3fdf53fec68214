"""Which held-out logged episodes count for the success rate of the logs."""

from builders import make_episode, make_task, with_unknown_outcome

from flows.stages.evaluate_on_logs import logged_successes


def test_an_unknown_outcome_is_no_loss():
    won, lost = (make_episode(make_task(), ("go", "s"), won=is_won) for is_won in (True, False))
    assert logged_successes([won, with_unknown_outcome(lost), lost]) == ([won], 2)
    assert logged_successes([with_unknown_outcome(lost)]) == ([], 0)
