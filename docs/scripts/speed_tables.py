"""Tables of speed: of the dream, of training, of a GPU, and where the time goes."""

from __future__ import annotations

from result_files import RESULTS, ROOT, estimates, interval, read_json, table

from flows.jobs.bench.gpu.targets import target_rows

BENCHES = ("bench-dream-quick", "bench-dream-cpu", "bench-dream-browser")
BENCH_ROWS = (
    ("the dream", "dream", ""),
    ("`generate`, one step a call", "single_generate", "ratio_vs_single_generate"),
    ("`generate`, all episodes in a call", "plain_generate", "ratio_vs_plain_generate"),
    ("real environment, stock", "stock_environment", "ratio_vs_stock_environment"),
    ("real environment, our caches", "cached_environment", "ratio_vs_cached_environment"),
)


def dream_speed() -> str:
    """Return steps per second of the dream, of `generate` and of the real environments."""
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
    """Return tokens per second of RL updates and of fine-tuning, here and in TRL."""
    own = estimates(read_json("bench-train"))
    kinds = (
        ("RL update; GRPOTrainer", "ours", "trl", "ratio_vs_trl"),
        ("fine-tuning; SFTTrainer", "sft_ours", "sft_trl", "ratio_vs_sft_trl"),
    )
    rows = [
        [
            title,
            interval(own[f"{ours}/tokens_per_second"], ",.0f"),
            interval(own[f"{theirs}/tokens_per_second"], ",.0f"),
            interval(own[ratio], ".2f"),
        ]
        for title, ours, theirs, ratio in kinds
    ]
    tokens, rounds, threads = (f"{own[key].value:,.0f}" for key in ("tokens", "rounds", "threads"))
    heads = [f"{tokens} tokens, {rounds} rounds, {threads} thread", "tokens/s, ours", "tokens/s, TRL's"]
    return table([*heads, "times as fast"], rows)


def profile() -> str:
    """Return shares of the wall time of an update and of a rollout, by operation."""
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


def gpu_speed() -> str:
    """Return the figures of `dreamgym bench gpu`, or that it is still to be run."""
    if not (ROOT / RESULTS / "bench-gpu.json").is_file():
        return "**Still to be run**: no figure of a GPU is on record."
    found = read_json("bench-gpu")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    rows = [[name, f"{value:,.4g}"] for name, value in found["figures"].items()]
    rows += [[name, f"not measured: {reason}"] for name, reason in found["failures"].items()]
    machine = f"{found['hardware']['compute']}; {versions}."
    compared = table(["target", "at least", "found", ""], target_rows(found["targets"]))
    return f"{machine}\n\n{compared}\n\n" + table(["figure", "value"], rows)


DATA_ROWS = (
    ("Parquet written", "write/seconds", "s"),
    ("its size", "write/mb", "MB"),
    ("Parquet read as a list", "read/seconds", "s"),
    ("memory", "read/gb", "GB"),
    ("one pass over its episodes", "stream/seconds", "s"),
    ("memory", "stream/gb", "GB"),
    ("validated", "validate/seconds", "s"),
    ("memory", "validate/gb", "GB"),
    ("versioned by DVC", "snapshot/seconds", "s"),
    ("memory", "snapshot/gb", "GB"),
    ("buffer filled, exact search", "exact/seconds", "s"),
    ("memory", "exact/gb", "GB"),
    ("one question", "exact/milliseconds_a_question", "ms"),
    ("buffer filled, Chroma", "chroma/seconds", "s"),
    ("of it, processor", "chroma/cpu_seconds", "s"),
    ("memory", "chroma/gb", "GB"),
    ("one question", "chroma/milliseconds_a_question", "ms"),
)


def data_size() -> str:
    """Return time and memory by number of transitions, from `dreamgym bench data`."""
    found = read_json("bench-data")["transitions"]
    rows = [
        [title, *(f"{own[name]:,.3g} {unit}" if name in own else "" for own in found.values())]
        for title, name, unit in DATA_ROWS
    ]
    return table(["transitions", *(f"{int(size):,}" for size in found)], rows)
