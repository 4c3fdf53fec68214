"""Which of an episode's replies deserve its outcome: one file per method, chosen by `step_credit`."""
