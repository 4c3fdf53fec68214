"""The table of README.md: at most eight rows, each number with a link to its JSON file."""

from __future__ import annotations

from result_files import EXACT, RESULTS, SUCCESS, Metrics, read_metrics, short, table
from study_tables import beside

from components.evaluation.study.study_table import real_steps_ever


def readme_results() -> str:
    """Return the one table of README.md."""
    rows = [
        logs_only_row(),
        weak_logs_row(),
        study_row("WebShop, dream then reality", "study-webshop", "s2r-gigpo", "gigpo-real", ""),
        smollm2_agent_row(),
        fidelity_row("next states that the history determines, word for word", EXACT, ablation_control()),
        smollm2_row(),
        fidelity_row("dreamed successes confirmed in reality", "fidelity/rollout_agreement/20"),
        fidelity_row("reward precision on policies' steps", "fidelity/policy_reward_precision"),
    ]
    head = [
        "on held-out real games",
        "value (95 %), n",
        "real steps in RL (with logs, checks, evaluation)",
        "clone",
        "RL in reality",
    ]
    return table([*head, "negative control"], rows)


def linked(text: str, name: str) -> str:
    """Return `text` with a link to `docs/results/NAME.json`; empty for an empty text."""
    return f"[{text}]({(RESULTS / f'{name}.json').as_posix()})" if text else ""


def games(name: str, own: Metrics, metric: str = SUCCESS) -> str:
    """Return a metric of a study with its interval, and n as games times seeds."""
    seeds = sum(key.startswith(f"{SUCCESS}/seed_") for key in own)
    return linked(f"{short(own[metric])}, n={own[metric].n}×{seeds}", name)


def steps_of(own: Metrics) -> str:
    """Return the real steps of RL, and in brackets those with logs, pretraining and checks, if known."""
    ever = real_steps_ever(own)
    return f"{own['cost/real_interactions'].value:,.0f}" + (f" ({ever})" if ever else "")


def study_row(title: str, name: str, method: str, base: str, control: str) -> list[str]:
    """Return the row of a method, with cloning alone, RL in reality, and a negative control if named."""
    metrics = read_metrics(name)
    own = metrics[method]
    return [
        title,
        games(name, own),
        steps_of(own),
        linked(short(metrics["clone"][SUCCESS]), name),
        linked(
            f"{short(metrics[base][SUCCESS])}, {metrics[base]['cost/real_interactions'].value:,.0f} steps",
            name,
        ),
        linked(f"{short(metrics[control][SUCCESS])}", name) if control else "",
    ]


def logs_only_row() -> list[str]:
    """Return the row of dreams that knew nothing but the logs; reality is of the study on the same logs."""
    name, title = "study-logs-only", "ALFWorld, logs of weak agents, dream that has read nothing else"
    metrics = read_metrics(name)
    reality = read_metrics("study-weak")["gigpo-real"]
    steps = f"{reality['cost/real_interactions'].value:,.0f} steps"
    clones = [linked(short(metrics[clone][SUCCESS]), name) for clone in ("clone", "clone-successes")]
    pairs, _ = beside(name, "dpo-logs", base="clone")
    clones[-1] += f"; DPO on logs [{short(pairs[SUCCESS])}](docs/results.md)"
    return [
        title,
        games(name, metrics["dream-gigpo"]),
        steps_of(metrics["dream-gigpo"]),
        "; of successes ".join(clones),
        linked(f"{short(reality[SUCCESS])}, {steps}", "study-weak"),
        "; ".join(
            f"{word} {linked(short(metrics[control][SUCCESS]), name)}"
            for word, control in (
                ("not fine-tuned, so the clone as it was, two seeds", "untrained-dream"),
                ("outcomes half wrong, one seed", "flipped-dream"),
                ("swapped states, two seeds", "swapped-dream"),
            )
        ),
    ]


def weak_logs_row() -> list[str]:
    """Return the row of the study whose logs hold no expert; its better clone stands beside the clone."""
    name, title = "study-weak", "the same, dream that knew this world before"
    row = study_row(title, name, "dream-gigpo", "gigpo-real", "swapped-dream")
    metrics = read_metrics(name)
    row[3] += f"; of successes {linked(short(metrics['clone-successes'][SUCCESS]), name)}"
    wrong = linked(short(metrics["flipped-dream"][SUCCESS]), name)
    row[5] = f"swapped states {row[5]}; outcomes half wrong {wrong}; not fine-tuned "
    row[5] += linked(short(metrics["untrained-dream"][SUCCESS]), name)
    return row


def smollm2_agent_row() -> list[str]:
    """Return the row of the policy of the newest run of `configs/smollm2.yaml`."""
    *_, last = read_metrics("smollm2").values()
    own, clone = (last[f"evaluate/{name}/success_rate"] for name in ("dreamed", "cloned"))
    title = "ALFWorld, SmolLM2-135M, dream alone, no reasoning, premise or rule (validation games)"
    return [
        title,
        linked(f"{short(own)}, n={own.n}×1", "smollm2"),
        "0",
        linked(short(clone), "smollm2"),
        "",
        "",
    ]


def fidelity_row(title: str, metric: str, control: str = "") -> list[str]:
    """Return the row of one fidelity metric of `configs/cpu.yaml`."""
    own = read_metrics("fidelity-cpu")["full"][metric]
    return [f"fidelity: {title}", linked(f"{short(own)}, n={own.n:,}", "fidelity-cpu"), "", "", "", control]


def smollm2_row() -> list[str]:
    """Return the row of the states and rewards of the newest run of `configs/smollm2.yaml`."""
    *_, last = read_metrics("smollm2").values()
    values = [f"{short(last[name])}, n={last[name].n:,}" for name in (EXACT, "fidelity/reward_precision")]
    title = "fidelity: SmolLM2-135M, no hand-written part, smaller rooms: the same states; reward precision"
    return [title, linked("; ".join(values), "smollm2"), "", "", "", ""]


def ablation_control() -> str:
    """Return the metric of a model trained on expert episodes alone, and of the full model."""
    metrics = read_metrics("fidelity")
    whole, experts = (short(metrics[name][EXACT]) for name in ("full", "expert-only"))
    return linked(f"{experts}; same training on all data {whole}", "fidelity")
