"""Write the tables of README.md and docs/results.md from the JSON files under docs/results.

    python docs/scripts/make_tables.py           # write the tables between their table_markers
    python docs/scripts/make_tables.py --check   # exit code 1 if a document differs

A table stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. The study tables are computed from the
cells of the study, the others from the pooled JSON file of the command that measured them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

from components.evaluation.metrics.intervals import Estimate  # noqa: E402
from components.evaluation.report.document_tables import insert_table, table_markers  # noqa: E402
from components.evaluation.study.cells import Cell  # noqa: E402
from components.evaluation.study.study_results import summarise  # noqa: E402
from components.evaluation.study.study_table import study_table  # noqa: E402
from components.evaluation.study.transfer_table import transfer_table  # noqa: E402
from flows.jobs.study_methods import BASE, BASES, METHODS  # noqa: E402

ROOT = Path(__file__).parents[2]
RESULTS = Path("docs/results")
SUCCESS = "evaluate/success_rate"
EXACT = "fidelity/next_state_exact/determined"
Metrics = Mapping[str, Estimate]

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
BENCHES = ("bench-dream-quick", "bench-dream-cpu", "bench-dream-browser")
BENCH_ROWS = (
    ("the dream", "dream", ""),
    ("`generate`, one step a call", "single_generate", "ratio_vs_single_generate"),
    ("`generate`, all episodes in a call", "plain_generate", "ratio_vs_plain_generate"),
    ("real environment, stock", "stock_environment", "ratio_vs_stock_environment"),
    ("real environment, our caches", "cached_environment", "ratio_vs_cached_environment"),
)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def estimates(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    """Metric name -> estimate, from the form in which metrics are written to JSON."""
    return {
        name: Estimate(value["value"], value["n"], value["low"], value["high"])
        for name, value in values.items()
        if isinstance(value, Mapping)
    }


def read_json(name: str) -> Any:
    """The content of `docs/results/NAME.json`."""
    return json.loads((ROOT / RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def read_metrics(name: str) -> dict[str, dict[str, Estimate]]:
    """Variant or method -> its metrics, from `docs/results/NAME.json`."""
    return {variant: estimates(values) for variant, values in read_json(name).items()}


def interval(found: Estimate, form: str = ".3f") -> str:
    """`value (low to high)`."""
    return f"{found.value:{form}} ({found.low:{form}} to {found.high:{form}})"


def with_count(found: Estimate | None) -> str:
    """`value (low to high), n=...`, or nothing where it was not measured."""
    return "" if found is None else f"{interval(found)}, n={found.n:,}"


def read_cells(name: str) -> dict[str, list[Cell]]:
    """Method -> its cells in the order of the seeds, from the folder `docs/results/NAME`."""
    every = [
        Cell(**json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / RESULTS / name).glob("*.json"))
    ]
    cells = {method: [cell for cell in every if cell.method == method] for method in METHODS}
    return {method: found for method, found in cells.items() if found}


def study(name: str) -> str:
    """The table that `dreamgym study --finished` makes of the same cells."""
    cells = read_cells(name)
    return study_table(summarise(cells, BASE, BASES), cells, BASE, BASES)


def families() -> str:
    """Success by family of tasks, one column a family."""
    metrics = read_metrics("study")
    keys = {key.removeprefix(f"{SUCCESS}/") for key in metrics["clone"] if key.startswith(f"{SUCCESS}/")}
    names = sorted(name for name in keys if not name.startswith("seed_"))
    rows = [
        [method, *(interval(own[f"{SUCCESS}/{name}"]) for name in names)] for method, own in metrics.items()
    ]
    return table(["method", *(f"`{name}`" for name in names)], rows)


def step_cost() -> str:
    """Seconds a real step must take longer for the dream to need the same time, or a third of it."""
    rows = [
        [study_name, method, f"{interval(own['reached/step_seconds/even'])} s", third_of(own)]
        for study_name in ("study", "study-qwen")
        for method, own in read_metrics(study_name).items()
        if "reached/step_seconds/even" in own
    ]
    return table(["study", "method", "same time from", "a third of the time from"], rows)


def third_of(own: Metrics) -> str:
    """Seconds from which the dream takes a third of reality's time, where a seed reached it."""
    third = own.get("reached/step_seconds/third")
    return "" if third is None else f"{interval(third)} s"


def watch() -> str:
    """Dreamed successes that the real engine confirmed while RL in the dream went on."""
    rows = [
        [study_name, method, with_count(own["watched/rollout_agreement"])]
        for study_name in ("study", "study-qwen", "study-webshop")
        for method, own in read_metrics(study_name).items()
        if "watched/rollout_agreement" in own and not method.startswith("s2r-")
    ]
    return table(["study", "method", "confirmed in the real engine (n: seeds)"], rows)


def fidelity() -> str:
    """The full experience model of `configs/cpu.yaml` against its targets."""
    own = read_metrics("fidelity-cpu")["full"]
    rows = [
        [title, with_count(own[name]), target, verdict(own[name], target)]
        for title, name, target in FIDELITY_ROWS
    ]
    return table(["measure", "value (95 %), n", "target", ""], rows)


def verdict(found: Estimate, target: str) -> str:
    """Whether the value itself reaches the target, whatever its interval."""
    if not target:
        return ""
    bound = float(target.split()[-1])
    reached = found.value >= bound if target.startswith("at least") else found.value <= bound
    return "reached" if reached else "**missed**"


def fidelity_parts() -> str:
    """The ablation: experience models that lack one part each."""
    metrics = read_metrics("fidelity")
    rows = [[title, *(with_count(metrics[part].get(name)) for part in PARTS)] for title, name in PART_ROWS]
    return table(["measure", *PARTS], rows)


def fidelity_data() -> str:
    """Experience models of fewer transitions."""
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


def dream_speed() -> str:
    """Steps per second of the dream, of `generate` and of the real environments."""
    metrics = {name: estimates(read_json(name)) for name in BENCHES}
    rows = []
    for title, contestant, ratio in BENCH_ROWS:
        row = [title]
        for own in metrics.values():
            row.append(interval(own[f"{contestant}/steps_per_second"], ".1f"))
            row.append(interval(own[ratio], ".1f") if ratio else "")
        rows.append(row)
    steps = [f"{own['steps'].value:,.0f} steps, {own['rounds'].value:.0f} rounds" for own in metrics.values()]
    heads = [
        cell
        for name, size in zip(("`quick.yaml`", "`cpu.yaml`", "browser"), steps, strict=True)
        for cell in (f"{name}: steps/s ({size})", "times as fast")
    ]
    return table(["contestant", *heads], rows)


def update_speed() -> str:
    """Tokens per second of an RL update, here and in TRL."""
    own = estimates(read_json("bench-train"))
    rows = [
        ["tokens/s, this loop", interval(own["ours/tokens_per_second"], ",.0f")],
        ["tokens/s, TRL's GRPOTrainer", interval(own["trl/tokens_per_second"], ",.0f")],
        ["times as fast", interval(own["ratio_vs_trl"], ".2f")],
        [
            "tokens, rounds, threads",
            ", ".join(f"{own[key].value:,.0f}" for key in ("tokens", "rounds", "threads")),
        ],
    ]
    return table(["an RL update", "median (lowest to highest)"], rows)


def profile() -> str:
    """Shares of the wall time of an update and of a rollout."""
    values = read_json("bench-profile")
    names = sorted({name.split("/", 1)[1] for name in values if "/" in name})
    rows = [
        [
            name,
            *(
                f"{values[key]['value']:.0%}" if (key := f"{part}/{name}") in values else ""
                for part in ("update", "rollout")
            ),
        ]
        for name in names
    ]
    return table(["operation", "share of an update", "share of a dreamed rollout"], rows)


def transfer() -> str:
    """Policies and experience models of each world in every other."""
    return transfer_table(read_metrics("transfer"))


def short(found: Estimate) -> str:
    """`value (low–high)`, the interval in one word: README.md has a limit of words."""
    return f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def readme_results() -> str:
    """The one table of README.md: at most eight rows, a link behind each number."""
    rows = [
        study_row("ALFWorld, dream alone", "study", "dream-grpo", "grpo-real", "no-history"),
        study_row("ALFWorld, dream then reality", "study", "s2r-grpo", "grpo-real", ""),
        study_row("ALFWorld, Qwen architecture, dream alone", "study-qwen", "dream-grpo", "grpo-real", ""),
        study_row("WebShop, dream then reality", "study-webshop", "s2r-grpo", "grpo-real", ""),
        transfer_row(),
        fidelity_row("determined next states, exact", EXACT, ablation_control()),
        fidelity_row("dreamed successes confirmed in reality", "fidelity/rollout_agreement/20"),
        fidelity_row("reward precision on policies' steps", "fidelity/policy_reward_precision"),
    ]
    head = ["on held-out real games", "value (95 %), n", "real steps", "clone", "RL in reality"]
    return table([*head, "negative control"], rows)


def linked(text: str, name: str) -> str:
    """`text` with a link to `docs/results/NAME.json`."""
    return f"[{text}]({(RESULTS / f'{name}.json').as_posix()})" if text else ""


def games(name: str, own: Metrics, metric: str = SUCCESS) -> str:
    """n of a study: games and seeds."""
    seeds = sum(key.startswith(f"{SUCCESS}/seed_") for key in own)
    return linked(f"{short(own[metric])}, n={own[metric].n}×{seeds}", name)


def study_row(title: str, name: str, method: str, base: str, control: str) -> list[str]:
    """A method of a study beside cloning alone, RL in reality, and a control where the study has one."""
    metrics = read_metrics(name)
    own = metrics[method]
    return [
        title,
        games(name, own),
        f"{own['cost/real_interactions'].value:,.0f}",
        linked(short(metrics["clone"][SUCCESS]), name),
        linked(
            f"{short(metrics[base][SUCCESS])}, {metrics[base]['cost/real_interactions'].value:,.0f} steps",
            name,
        ),
        linked(f"{short(metrics[control][SUCCESS])}", name) if control else "",
    ]


def transfer_row() -> list[str]:
    """Success on the families that no method was rewarded for."""
    metrics, metric = read_metrics("study"), f"{SUCCESS}/held_back"
    own, real = metrics["transfer-dream-grpo"], metrics["transfer-grpo-real"]
    return [
        "ALFWorld, unrewarded task families, dream alone",
        games("study", own, metric),
        f"{own['cost/real_interactions'].value:,.0f}",
        linked(short(metrics["transfer-clone"][metric]), "study"),
        linked(f"{short(real[metric])}, {real['cost/real_interactions'].value:,.0f} steps", "study"),
        "",
    ]


def fidelity_row(title: str, metric: str, control: str = "") -> list[str]:
    """One measure of the dream of `configs/cpu.yaml`."""
    own = read_metrics("fidelity-cpu")["full"]
    return [
        f"fidelity: {title}",
        linked(f"{short(own[metric])}, n={own[metric].n:,}", "fidelity-cpu"),
        "",
        "",
        "",
        control,
    ]


def ablation_control() -> str:
    """The same measure in the ablation: of the whole model, and of one that read expert episodes alone."""
    metrics = read_metrics("fidelity")
    whole, experts = (short(metrics[name][EXACT]) for name in ("full", "expert-only"))
    return linked(f"{experts}; same training on all data {whole}", "fidelity")


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"results": readme_results},
    "docs/results.md": {
        "study": lambda: study("study"),
        "study-families": families,
        "study-watch": watch,
        "study-step-cost": step_cost,
        "study-annealed": lambda: study("study-annealed"),
        "study-qwen": lambda: study("study-qwen"),
        "study-webshop": lambda: study("study-webshop"),
        "study-browser": lambda: study("study-browser"),
        "transfer": transfer,
        "fidelity": fidelity,
        "fidelity-parts": fidelity_parts,
        "fidelity-data": fidelity_data,
        "speed-dream": dream_speed,
        "speed-update": update_speed,
        "speed-profile": profile,
    },
}


def differing_tables(root: Path = ROOT) -> list[str]:
    """`DOCUMENT: TABLE` of each table that is not the one its JSON files give."""
    differing = []
    for document, makers in TABLES.items():
        text = (root / document).read_text(encoding="utf-8")
        for name, make in makers.items():
            begin, end = table_markers(name)
            if f"{begin}\n{make()}\n{end}" not in text:
                differing.append(f"{document}: {name}")
    return differing


def write_tables(root: Path = ROOT) -> None:
    """Write every table between its table_markers."""
    for document, makers in TABLES.items():
        for name, make in makers.items():
            insert_table(root / document, make(), name)


def main() -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Write nothing; exit code 1 if a table differs.")
    if parser.parse_args().check:
        differing = differing_tables()
        print("\n".join(f"{name} differs. Type: python docs/scripts/make_tables.py" for name in differing))
        return int(bool(differing))
    write_tables()
    return 0


if __name__ == "__main__":
    sys.exit(main())
