"""Commands that measure speed and retrieval: `bench` and `index`.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    check_machine,
    load_settings,
    print_status,
    quick_config,
    report_failures,
)
from flows.printing.output import JsonFile, Output, output

if TYPE_CHECKING:
    from components.config import Config
    from components.evaluation.metrics.intervals import Estimate

verbs = typer.Typer()

Benchmark = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Benchmark to run: `dream`, `train`, `profile`, `overhead`, `gpu`, `cluster` or `data`.",
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(help="Directory of the experience model. Default: the newest finished stage's."),
]
Policy = Annotated[
    Path | None,
    typer.Option(help="`train`, `profile`: directory of the policy. Default: the newest clone's."),
]
Episodes = Annotated[int, typer.Option(min=1, help="`dream`, `cluster`: episodes of a batch.")]
Tasks = Annotated[
    int, typer.Option(min=1, help="`train`, `profile`: tasks, each played by one group of rollouts.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Repetitions; medians and intervals are over them.")]
Threads = Annotated[int, typer.Option(min=1, help="Torch threads of each contestant.")]
Tiny = Annotated[
    bool,
    typer.Option("--tiny", help="`gpu`: a tiny model for a moment: tries the benchmark, measures nothing."),
]
Sizes = Annotated[
    str, typer.Option(help="`data`: numbers of transitions, multiples of 20, separated by commas.")
]
MostInChroma = Annotated[
    int, typer.Option("--chroma-up-to", min=0, help="`data`: no larger size has an index of Chroma.")
]
Env = Annotated[str, typer.Option(metavar="NAME", help="Short for --config configs/quick-NAME.yaml.")]


@dataclass(frozen=True)
class BenchSettings:
    """Options of `dreamgym bench`; `model` and `policy` are directories, None means the newest one."""

    model: Path | None
    policy: Path | None
    episodes: int
    tasks: int
    rounds: int
    threads: int


@verbs.command()
def bench(
    name: Benchmark,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    model: Model = None,
    policy: Policy = None,
    episodes: Episodes = 64,
    tasks: Tasks = 8,
    rounds: Rounds = 5,
    threads: Threads = 1,
    tiny: Tiny = False,
    sizes: Sizes = "10000,100000,1000000",
    most_in_chroma: MostInChroma = 200_000,
    env: Env = "",
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Measure speed against alternatives that do the same work in the same process.

    Compare the ratios, not the seconds: these depend on the machine.

    `dream`: dreamed steps against transformers' `generate` and against the real environment. `generate` reads
    the full prompt of every step and must write the same tokens. The environment has one process and runs
    twice, stock and with our caches.

    `train`: RL updates and fine-tuning on the same recorded episodes, against TRL's GRPOTrainer and
    SFTTrainer.

    `profile`: shares of an optimiser step's and of dreamed rollouts' time, by kind of operation.

    `gpu`: fine-tuning and RL updates against TRL's trainers, and rollouts with vLLM, at 135 million and 1.5
    billion weights: all figures of a GPU in at most 8 minutes.

    `cluster`: the real environment on a Ray cluster (`cluster`, or one of this machine) against processes of
    this machine, with one and with `environment.workers` workers.

    `data`: time and memory of files, validation, snapshots and retrieval, at several numbers of transitions.

    `overhead`: the share of the newest complete run's wall time outside its stages; it runs nothing.

    Examples:

        dreamgym bench dream --json bench.json

        dreamgym bench train --json bench-train.json

        dreamgym bench dream --env browser

        dreamgym bench data --sizes 1000000 --chroma-up-to 1000000

        dreamgym bench dream --episodes 16 --rounds 3 --model
        .dreamgym/stages/experience_model-0123456789ab/model
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(quick_config(env, root) if env else config, overrides, root)
        from components.tracking.runs import checked_metrics
        from flows.jobs.bench.dream_speed import check_name

        check_name(name)
        check_machine(workspace, versions=False)
        if name == "gpu":
            page.replace(_bench_gpu(page, settings, tiny))
            return
        if name == "data":
            page.replace(_bench_data(page, sizes, most_in_chroma))
            return
        options = BenchSettings(model, policy, episodes, tasks, rounds, threads)
        metrics = _run_benchmark(name, page, settings, workspace, options)
        page.replace(checked_metrics({key: estimate.to_json() for key, estimate in metrics.items()}))


def _run_benchmark(
    name: str, page: Output, settings: Config, workspace: Path, options: BenchSettings
) -> dict[str, Estimate]:
    """Run the benchmark `name`, print its table and return its metrics."""
    from components.tracking.find_model import find_clone, find_model
    from flows.checks.preflight import ensure_data

    if name == "overhead":
        from flows.jobs.bench.overhead import bench_overhead, print_overhead

        run, figures = bench_overhead(workspace)
        print_overhead(page, run, figures)
        return figures
    if name == "cluster":
        from flows.jobs.bench.cluster_speed import bench_cluster, print_cluster

        ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
        rates = bench_cluster(
            settings, workspace, episodes=options.episodes, rounds=options.rounds, report=print_status
        )
        print_cluster(page, rates, settings.evaluation.confidence)
        return rates
    environment = settings.environment.name
    find = find_clone if name == "train" else find_model
    directory = find(workspace, options.policy if name == "train" else options.model, environment)
    ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
    if name == "dream":
        return _bench_dream(page, settings, workspace, directory, options)
    if name == "train":
        return _bench_train(page, settings, workspace, directory, options)
    from flows.jobs.bench.profile import bench_profile, print_profile

    clone = find_clone(workspace, options.policy, environment)
    metrics = bench_profile(
        settings,
        workspace,
        directory,
        clone,
        tasks=options.tasks,
        threads=options.threads,
        report=print_status,
    )
    print_profile(page, metrics)
    return metrics


def _bench_gpu(page: Output, settings: Config, tiny: bool) -> dict[str, Any]:
    from components.language.compute import compute_of
    from flows.jobs.bench.gpu.all_figures import bench_gpu, print_gpu

    result = bench_gpu(compute_of(settings), tiny=tiny, cache_gb=settings.vllm.cache_gb, report=print_status)
    print_gpu(page, result)
    return result


def _bench_data(page: Output, sizes: str, most_in_chroma: int) -> dict[str, Any]:
    from flows.jobs.bench.data_size import bench_data, print_data, read_sizes

    found = bench_data(read_sizes(sizes), print_status, most_in_chroma)
    print_data(page, found)
    return {"transitions": found}


def _bench_dream(
    page: Output, settings: Config, workspace: Path, model: Path, options: BenchSettings
) -> dict[str, Estimate]:
    from flows.jobs.bench.dream_speed import bench_dream, print_dream

    metrics = bench_dream(
        settings,
        workspace,
        model,
        episodes=options.episodes,
        rounds=options.rounds,
        threads=options.threads,
        report=print_status,
    )
    print_dream(page, metrics, settings.evaluation.confidence)
    return metrics


def _bench_train(
    page: Output, settings: Config, workspace: Path, policy: Path, options: BenchSettings
) -> dict[str, Estimate]:
    from flows.jobs.bench.train import bench_train, print_train

    metrics = bench_train(
        settings,
        workspace,
        policy,
        tasks=options.tasks,
        rounds=options.rounds,
        steps=3,
        threads=options.threads,
        report=print_status,
    )
    print_train(page, metrics, settings.evaluation.confidence)
    return metrics


@verbs.command("index")
def index_command(
    overrides: Overrides = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build the index from the whole log, even if one exists.")
    ] = False,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Build or update the vector index of the replay log, and measure its recall.

    The Parquet log (trajectories, replay) is the source of truth. The index in .dreamgym/index/ can be
    rebuilt from it at any time.

    Examples:

        dreamgym index retrieval.index=chroma

        dreamgym index --rebuild retrieval.index=chroma retrieval.encoder=minilm
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.preflight import ensure_data

        check_machine(workspace, versions=False)
        ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
        print_status("Reading the log and encoding transitions without a vector ...")
        from flows.cli.tables.index_table import print_index
        from flows.jobs.index import index_log

        print_index(page, index_log(settings, workspace, rebuild), settings.retrieval.k)
