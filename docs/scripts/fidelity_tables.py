"""Tables of the experience model's fidelity: against its targets, without a part, with less data."""

from __future__ import annotations

from collections.abc import Sequence

from result_files import EXACT, Metrics, read_metrics, table, with_count

from components.evaluation.metrics.intervals import Estimate

FIDELITY_ROWS = (
    ("determined next states, exact", EXACT, "at least 0.97"),
    ("the same where three facts or more change", f"{EXACT}/changed_3_plus", "at least 0.90"),
    ("the same in floor plans of no training game", f"{EXACT}/held_out_worlds", ""),
    ("facts that reality contradicts, determined", "fidelity/hallucination_rate/determined", "at most 0.02"),
    ("answers that cannot be parsed", "fidelity/unparsable_rate", "at most 0.005"),
    ("reward precision", "fidelity/reward_precision", "at least 0.97"),
    ("reward recall", "fidelity/reward_recall", "at least 0.95"),
    ("reward precision on near misses", "fidelity/reward_precision/near_miss", "at least 0.97"),
    ("reward recall on near misses", "fidelity/reward_recall/near_miss", "at least 0.95"),
    ("reward precision on the policies' real steps", "fidelity/policy_reward_precision", "at least 0.97"),
    ("reward recall on the policies' real steps", "fidelity/policy_reward_recall", "at least 0.95"),
    ("dreamed successes that the real engine confirms", "fidelity/rollout_agreement/20", "at least 0.90"),
    ("the 20th dreamed state, exact", "fidelity/open_loop_exact/20", ""),
    ("episodes whose first 20 states are all exact", "fidelity/open_loop_unbroken/20", ""),
)
PARTS = ("full", "no-history", "no-retrieval", "no-reasoning", "expert-only")
PART_ROWS = (
    ("determined next states, exact", EXACT),
    ("the same where three facts or more change", f"{EXACT}/changed_3_plus"),
    ("facts that reality contradicts, determined", "fidelity/hallucination_rate/determined"),
    ("reward precision", "fidelity/reward_precision"),
    ("reward recall", "fidelity/reward_recall"),
    ("reward precision on the policies' real steps", "fidelity/policy_reward_precision"),
    ("dreamed successes that the real engine confirms", "fidelity/rollout_agreement/20"),
    ("exact minus full, paired by task and seed", "difference/next_state_exact/determined"),
    ("exact minus full, seed 0", "difference/next_state_exact/determined/seed_0"),
    ("exact minus full, seed 1", "difference/next_state_exact/determined/seed_1"),
    ("exact minus full, seed 2", "difference/next_state_exact/determined/seed_2"),
)


def fidelity() -> str:
    """Return the fidelity of the full experience model of `configs/cpu.yaml`, with its targets."""
    return targets_table(read_metrics("fidelity-cpu")["full"], FIDELITY_ROWS)


def targets_table(metrics: Metrics, rows: Sequence[tuple[str, str, str]]) -> str:
    """Return the measures of one run. Args: rows: title, name of the metric, target or ""."""
    cells = [
        [title, with_count(metrics[name]), target, verdict(metrics[name], target)]
        for title, name, target in rows
    ]
    return table(["measure", "value (95 %), n", "target", ""], cells)


def verdict(estimate: Estimate, target: str) -> str:
    """Return whether the value reaches the target; its interval does not count."""
    if not target:
        return ""
    bound = float(target.split()[-1])
    is_reached = estimate.value >= bound if target.startswith("at least") else estimate.value <= bound
    return "reached" if is_reached else "**missed**"


def fidelity_parts() -> str:
    """Return the ablation: experience models that each lack one part."""
    metrics = read_metrics("fidelity")
    rows = [[title, *(with_count(metrics[part].get(name)) for part in PARTS)] for title, name in PART_ROWS]
    return table(["measure", *PARTS], rows)


def fidelity_data() -> str:
    """Return the fidelity of experience models that are trained on fewer transitions."""
    metrics = read_metrics("fidelity")
    sizes = sorted((name for name in metrics if name.startswith("data-")), key=lambda name: int(name[5:]))
    rows = [
        [
            f"{int(name[5:]):,}",
            with_count(metrics[name][EXACT]),
            with_count(metrics[name]["fidelity/reward_precision"]),
        ]
        for name in sizes
    ]
    full = metrics["full"]
    rows.append(["all", with_count(full[EXACT]), with_count(full["fidelity/reward_precision"])])
    return table(["transitions", "determined next states, exact", "reward precision"], rows)
