"""Write the tables of README.md and of pages under docs/ from docs/results' JSON files.

    python docs/scripts/make_tables.py           # write the tables between their marks
    python docs/scripts/make_tables.py --check   # exit code 1 if a document differs

A table stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. The study tables are computed from the
cells of the study, the others from the pooled JSON file of the command that measured them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from budget_table import budgets, slow  # noqa: E402
from fidelity_tables import fidelity, fidelity_data, fidelity_parts  # noqa: E402
from fidelity_transfer import fidelity_transfer  # noqa: E402
from method_table import half_way, methods, observed_states, studied, withdrawn  # noqa: E402
from readme_table import readme_results  # noqa: E402
from result_files import ROOT  # noqa: E402
from seed_rows import knowledge, meta_rewarding, used_fidelity, world_study  # noqa: E402
from smollm2_table import smollm2, smollm2_kinds, smollm2_parts  # noqa: E402
from speed_tables import data_size, dream_speed, gpu_speed, profile, update_speed  # noqa: E402
from study_tables import against_reality, families, seeds, step_cost, study, transfer, watch  # noqa: E402
from target_table import targets  # noqa: E402
from world_tables import own_reasons, world_fidelity  # noqa: E402

from components.evaluation.report.document_tables import insert_table, table_markers  # noqa: E402

TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"results": readme_results},
    "docs/results.md": {
        "targets": targets,
        "study-logs-only": lambda: study("study-logs-only", "clone-successes", studied("study-logs-only")),
    },
    "docs/all-tables.md": {
        "study": lambda: study("study"),
        "study-clones": lambda: study("study-clones", "clone"),
        "study-families": families,
        "study-watch": watch,
        "study-step-cost": step_cost,
        "study-annealed": lambda: study("study-annealed"),
        "study-qwen": lambda: study("study-qwen"),
        "study-webshop": lambda: study("study-webshop"),
        "study-browser": lambda: study("study-browser"),
        "used-logs-only": lambda: used_fidelity("study-logs-only"),
        "used-weak": lambda: used_fidelity("study-weak"),
        "transfer": transfer,
        "fidelity": fidelity,
        "fidelity-parts": fidelity_parts,
        "fidelity-data": fidelity_data,
        "smollm2-kinds": smollm2_kinds,
    },
    "docs/results/methods.md": {
        "methods": lambda: methods("methods", "study-logs-only", "study-weak"),
        "half-way": lambda: half_way("methods", "study-logs-only"),
        "observed-states": lambda: observed_states("study-logs-only", "study-weak"),
        "withdrawn": lambda: withdrawn("study-withdrawn", "study-logs-only"),
    },
    "docs/experiments/smollm2.md": {"smollm2": smollm2, "smollm2-parts": smollm2_parts},
    "docs/experiments/dreams-from-weak-logs.md": {
        "seeds": lambda: seeds("study-logs-only", "clone-successes", studied("study-logs-only"))
    },
    "docs/experiments/weak-logs.md": {
        "study-weak": lambda: study("study-weak", "clone-successes", studied("study-weak-logs")),
        "against-reality": lambda: against_reality("study-weak", ("dream-gigpo", "s2r-gigpo")),
    },
    "docs/experiments/real-budgets.md": {"study-budgets": budgets},
    "docs/experiments/slow-steps.md": {"study-slow": slow},
    "docs/experiments/no-knowledge.md": {"knowledge": knowledge},
    "docs/experiments/fidelity-and-transfer.md": {"fidelity-transfer": fidelity_transfer},
    "docs/experiments/own-reasons.md": {"own-reasons": own_reasons},
    "docs/experiments/meta-rewarding.md": {"meta-rewarding": meta_rewarding},
    "docs/experiments/textworld.md": {
        "worlds-textworld": lambda: world_study("worlds-textworld"),
        "worlds-textworld-2": lambda: world_study("worlds-textworld-2"),
    },
    "docs/experiments/textworld-known-foods.md": {
        "worlds-textworld-known": lambda: world_study("worlds-textworld-known", "worlds-textworld-known-2"),
        "known-foods": lambda: study(
            "worlds-textworld-known",
            "clone-successes",
            further=["worlds-textworld-known-2"],
            bases={"successes-gigpo": "clone-successes"},
        ),
    },
    "docs/experiments/scienceworld.md": {"worlds-scienceworld": lambda: world_study("worlds-scienceworld")},
    "docs/experiments/foreign-worlds.md": {
        "worlds-babyai": lambda: study("worlds-babyai", "clone-successes"),
        "worlds-fidelity": world_fidelity,
    },
    "docs/performance.md": {
        "speed-dream": dream_speed,
        "speed-update": update_speed,
        "speed-profile": profile,
        "speed-data": data_size,
        "speed-gpu": gpu_speed,
    },
}
"""Document -> name of the table -> function that returns it."""


def differing_tables(root: Path = ROOT) -> list[str]:
    """Return `DOCUMENT: TABLE` for each table that differs from the one of its JSON files."""
    differing = []
    for document, makers in TABLES.items():
        text = (root / document).read_text(encoding="utf-8")
        for name, make in makers.items():
            begin, end = table_markers(name)
            if f"{begin}\n{make()}\n{end}" not in text:
                differing.append(f"{document}: {name}")
    return differing


def write_tables(root: Path = ROOT) -> None:
    """Write every table between its marks."""
    for document, makers in TABLES.items():
        for name, make in makers.items():
            insert_table(root / document, make(), name)


def main() -> int:
    """Write the tables, or compare them; return the exit code."""
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
