"""The verbs that measure and look: a policy's success, what a dream and its parts are worth, speed, the
index.

Libraries are imported inside the verbs, so that `--help` is quick.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    begin,
    check_machine,
    fail_on_crash,
    make_study,
    prepared,
    quick_config,
    quiet,
    reported,
    say,
)
from flows.printing.output import Column, JsonFile, Table, output

verbs = typer.Typer()


@verbs.command()
def evaluate(
    overrides: Overrides = None,
    policy: Annotated[
        str, typer.Option(help="A policy's directory, or `champion`: the promoted one in the registry.")
    ] = "champion",
    split: Annotated[
        Literal["validation", "test"],
        typer.Option(help="Validation games, or test games: each reading of these is noted."),
    ] = "validation",
    run: Annotated[
        str, typer.Option(help="A run's id or `latest`, in place of --policy: its three policies play.")
    ] = "",
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Success of one policy, or of a run's three, on held-out real games, with intervals.

    Examples:

        dreamgym evaluate

        dreamgym evaluate --run latest --split test

        dreamgym evaluate --policy .dreamgym/stages/clone-0123456789ab/policy evaluation.tasks=100
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.checks.preflight import check_settings, ensure_data

        check_machine(place)
        ensure_data(place, settings, say, backbone=False)
        check_settings(place, settings, config, training=False)
        from flows.jobs.score import score_policies
        from flows.printing.formats import rate_cells, rate_columns

        quiet(debug)
        scores = score_policies(settings, place, policy, split, run)
        columns = [Column("games"), *rate_columns("success", settings.evaluation.confidence)]
        for name, score in scores.policies.items():
            rows = [
                [name, *rate_cells(estimate.to_json())]
                for name, estimate in {"all": score.success, **score.families}.items()
            ]
            page.table(
                f"success/{name}" if run else "success",
                Table(f"{score.policy} on {split} games (real)", columns, rows),
            )
        page.text(f"{scores.interactions:,} real interactions; MLflow run {scores.mlflow_run_id}")
        if split == "test":
            page.text(
                f"These test games have now been read {scores.readings} times (.dreamgym/test_reads.jsonl "
                "names who)."
            )
        named = {name: str(score.policy) for name, score in scores.policies.items()}
        page.put(
            policies=named, policy=next(iter(named.values())), split=split, test_readings=scores.readings
        )
        page.put(real_interactions=scores.interactions, mlflow_run=scores.mlflow_run_id)


@verbs.command()
def pool(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Ids of finished runs, such as those of three seeds."),
    ],
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Success of several runs on the same held-out games, each for itself and all together, with intervals
    for further games and runs.

    Example:

        dreamgym pool 20260131-142530-9f3a 20260131-151200-01bc 20260131-160114-77de
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from components.evaluation.metrics.pooling import pool as pool_games
        from components.tracking.runs import find_run, read_games
        from components.tracking.same_policy import distinct_runs, require_different_policies
        from flows.cli.summary import print_pooled

        directories = [find_run(place / "runs", run) for run in runs]
        require_different_policies(distinct_runs(directories), place / ".dreamgym" / "stages")
        games = {directory.name: read_games(directory) for directory in directories}
        pooled = {name: estimate.to_json() for name, estimate in pool_games(games).items()}
        rates = {
            name: {policy: sum(won.values()) / len(won) for policy, won in played.items()}
            for name, played in games.items()
        }
        print_pooled(page, rates, pooled)


@verbs.command()
def fidelity(
    overrides: Overrides = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="DIR|config",
            help="An experience model's directory; `config`: this config's own; default: the champion's.",
        ),
    ] = "",
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Examine an experience model: may its dream be trusted, and where not? What is not there yet is made,
    the policies too.

    Single steps of held-out data and of an untrained, a cloned and a dream-trained policy, and whole dreams
    replayed in the real engine.

    Without a champion, and with experience_model.* on the command line, the model of the config is examined.

    Examples:

        dreamgym fidelity

        dreamgym fidelity --model config --config configs/quick.yaml
    """
    with reported(debug, resumes=True), output(json_file) as page:
        settings, place = prepared(config, overrides, root)
        from components.tracking.chosen_model import choose_stage
        from flows.cli.summary import print_fidelity
        from flows.jobs.fidelity import examine

        quiet(debug)
        stage, which = choose_stage(settings, place, model)
        say(f"Examined is the experience model {which}.")
        page.put(model=which)
        run = examine(settings, place, stage)
        print_fidelity(page, run.directory)


ablations = typer.Typer(
    help="What each part is worth: the same measurement of models that lack one thing each.",
    no_args_is_help=True,
)
verbs.add_typer(ablations, name="ablate")


@ablations.command("fidelity")
def ablate(
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    variants: Annotated[str, typer.Option(help="Variants, separated by commas; default: all of them.")] = "",
    sizes: Annotated[
        str, typer.Option(help="Offline transitions of the data-size curve; empty: no curve.")
    ] = "500,2000,5000,10000",
    cells: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where finished cells are kept and read back from.")
    ] = None,
    json_file: JsonFile = None,
    figure: Annotated[
        Path | None, typer.Option(help="Where the figure of the bars goes (.png or .svg).")
    ] = None,
    curve: Annotated[Path | None, typer.Option(help="Where the data-size curve goes (.png or .svg).")] = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Experience models without history, retrieval, reasoning, with expert data only, and with less data,
    over several seeds.

    Finished stages are kept: an interrupted ablation goes on where it was; with --cells on another machine
    too.

    Examples:

        dreamgym ablate fidelity --config configs/cpu.yaml --cells docs/results/fidelity --json
        docs/results/fidelity.json

        dreamgym ablate fidelity --seeds 0 --variants full,no-reasoning --sizes ""
    """
    with reported(debug, resumes=True), output(json_file) as page:
        settings, place = prepared(config, overrides, root)
        from flows.jobs.ablation import (
            ablate_fidelity,
            check_figures,
            chosen_variants,
            full_size,
            write_ablation,
        )

        wanted = chosen_variants(variants, sizes)
        check_figures(figure, curve)
        check_machine(place, figure, curve, place / cells if cells else None)
        numbers = _numbers(seeds, "--seeds")
        quiet(debug)
        found = ablate_fidelity(settings, place, numbers, wanted, place / cells if cells else None)
        from flows.cli.summary import print_ablation

        print_ablation(page, found)
        for path in write_ablation(found, figure=figure, curve=curve, total=full_size(settings, place)):
            page.text(f"Written: {path}")


@verbs.command()
def study(
    overrides: Overrides = None,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; default: all of them.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    cells: Annotated[Path, typer.Option(help="Where finished cells are kept and read back from.")] = Path(
        "docs/results/study"
    ),
    finished: Annotated[
        bool, typer.Option("--finished", help="Read the finished cells alone and make no other.")
    ] = False,
    json_file: JsonFile = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the figures go.")] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A Markdown file: the table goes between `<!-- study:begin -->` and `end`, named as "
            "--cells is.",
        ),
    ] = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """What RL in the dream is worth beside RL in reality: methods times seeds on the same held-out games, and
    what each cost.

    Finished cells are small files, one a method and seed: an interrupted study goes on where it was, also on
    another machine. A cell that crashes is told in the table, and the others go on.

    Examples:

        dreamgym study --config configs/study.yaml --json docs/results/study.json --figures docs/images
        --table docs/results.md

        dreamgym study --methods clone,grpo-real,dream-grpo --seeds 0

        dreamgym study --config configs/quick-browser.yaml --cells docs/results/study-browser --methods
        clone,grpo-real,s2r-grpo
    """
    with reported(debug, resumes=True), output(json_file) as page:
        settings, place = prepared(config, overrides, root)
        from components.evaluation.report.document_tables import around_table
        from flows.jobs.study import write_study
        from flows.jobs.study_methods import chosen_methods

        wanted, numbers = chosen_methods(methods), _numbers(seeds, "--seeds")
        check_machine(place, figures, place / cells)
        if table:
            around_table(table, cells.name)  # before hours of work
        quiet(debug)
        found, metrics = make_study(page, settings, place, wanted, numbers, place / cells, finished=finished)
        for path in write_study(found, metrics, None, figures, table, cells.name):
            page.text(f"Written: {path}")
        fail_on_crash(found)


@verbs.command()
def transfer(
    configs: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG... [KEY=VALUE]...", help="A config of each world; overrides of all."),
    ],
    json_file: JsonFile = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A Markdown file: the tables go between `<!-- transfer:begin -->` and `end`."
        ),
    ] = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Policies and experience models of each world put to the test in every other, as they stand; what is not
    there yet is made.

    Example:

        dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml configs/quick-browser.yaml --json
        docs/results/transfer.json
    """
    with reported(debug, resumes=True), output(json_file) as page:
        from components.evaluation.report.document_tables import around_table

        if table:
            around_table(table, "transfer")  # before hours of work
        overrides = [argument for argument in configs if "=" in argument]
        settings = [
            prepared(Path(argument), overrides, root) for argument in configs if argument not in overrides
        ]
        from flows.cli.summary import print_transfer
        from flows.jobs.transfer import by_world, write_transfer
        from flows.jobs.transfer import transfer as run_transfer

        worlds = by_world([config for config, _ in settings])
        quiet(debug)
        found = run_transfer(worlds, settings[0][1])
        print_transfer(page, found)
        if table:
            write_transfer(found, table)
            page.text(f"Written: {table}")


def _numbers(text: str, option: str) -> list[int]:
    from components.config.reading.config_values import LARGEST_INTEGER
    from components.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(
        re.fullmatch("0|[1-9][0-9]{0,18}", part) and int(part) <= LARGEST_INTEGER for part in parts
    ):
        expected = f"Expected integers from 0 to {LARGEST_INTEGER} in decimal digits, separated by commas."
        raise ConfigError(f"{option} is {text!r}.", expected, f"Type {option} 0,1,2.")
    if len(set(parts)) < len(parts):
        raise ConfigError(
            f"{option} is {text!r}: a number stands there twice.",
            "Expected each once.",
            f"Type {option} 0,1,2.",
        )
    return [int(part) for part in parts]


@verbs.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="`dream`: against generate and reality; `train`: against TRL; `profile`; `overhead`.",
        ),
    ],
    overrides: Overrides = None,
    json_file: JsonFile = None,
    model: Annotated[
        Path | None,
        typer.Option(help="An experience model's directory; default: of the newest finished stage."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="`train`, `profile`: a policy's directory; default: of the newest clone."),
    ] = None,
    episodes: Annotated[
        int, typer.Option(min=1, help="`dream`: recorded episodes, dreamed side by side.")
    ] = 64,
    tasks: Annotated[int, typer.Option(min=1, help="`train`, `profile`: tasks, each played by a group.")] = 8,
    rounds: Annotated[
        int, typer.Option(min=1, help="Repeats, over which medians and intervals are taken.")
    ] = 5,
    threads: Annotated[int, typer.Option(min=1, help="torch threads of each contestant.")] = 1,
    env: Annotated[
        str, typer.Option(metavar="NAME", help="Short for --config configs/quick-NAME.yaml.")
    ] = "",
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """How fast the dream is, beside others that do the very same steps in the same run: compare the ratios,
    not the seconds.

    `dream`: against transformers' `generate` with the full prompt of every step (and token for token the
    same, or it fails), and against the real environment in one process, stock and with our caches.

    `train`: optimiser steps on the same recorded episodes, against TRL's GRPOTrainer.

    `profile`: what an optimiser step and dreamed rollouts spend their time on, by kind of operation.

    `overhead`: what of the newest whole run's wall time was not spent in a stage; it runs nothing.

    Examples:

        dreamgym bench dream --json bench.json

        dreamgym bench train --json bench-train.json

        dreamgym bench dream --env browser

        dreamgym bench dream --episodes 16 --rounds 3 --model
        .dreamgym/stages/experience_model-0123456789ab/model
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(quick_config(env, root) if env else config, overrides, root)
        from components.tracking.find_model import find_clone, find_model
        from components.tracking.runs import checked_metrics
        from flows.checks.preflight import ensure_data
        from flows.jobs.bench.dream_speed import bench_dream, check_name, print_dream

        check_name(name)
        check_machine(place, versions=False)
        world = settings.environment.name
        if name == "overhead":
            from flows.jobs.bench.overhead import bench_overhead, print_overhead

            run, figures = bench_overhead(place)
            print_overhead(page, run, figures)
            page.replace(checked_metrics({key: estimate.to_json() for key, estimate in figures.items()}))
            return
        directory = find_clone(place, policy, world) if name == "train" else find_model(place, model, world)
        ensure_data(place, settings, say, backbone=False, versioned=False)
        if name == "dream":
            metrics = bench_dream(
                settings, place, directory, episodes=episodes, rounds=rounds, threads=threads, say=say
            )
            print_dream(page, metrics, settings.evaluation.confidence)
        elif name == "profile":
            from flows.jobs.bench.profile import bench_profile, print_profile

            metrics = bench_profile(
                settings,
                place,
                directory,
                find_clone(place, policy, world),
                tasks=tasks,
                threads=threads,
                say=say,
            )
            print_profile(page, metrics)
        else:
            from flows.jobs.bench.train import bench_train, print_train

            metrics = bench_train(
                settings, place, directory, tasks=tasks, rounds=rounds, steps=3, threads=threads, say=say
            )
            print_train(page, metrics, settings.evaluation.confidence)
        page.replace(checked_metrics({key: estimate.to_json() for key, estimate in metrics.items()}))


@verbs.command("index")
def index_command(
    overrides: Overrides = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build it anew from the log, whatever is there.")
    ] = False,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Build the vector index of the replay log, or bring it up to date, and measure what it finds.

    The Parquet log (trajectories, replay) is the truth; the index in .dreamgym/index/ can be made from it at
    any time.

    Examples:

        dreamgym index retrieval.index=chroma

        dreamgym index --rebuild retrieval.index=chroma retrieval.encoder=minilm
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.checks.preflight import ensure_data

        check_machine(place, versions=False)
        ensure_data(place, settings, say, backbone=False, versioned=False)
        say("Reading the log, and encoding what has no vector yet ...")
        from flows.cli.summary import print_index
        from flows.jobs.index import index_log

        print_index(page, index_log(settings, place, rebuild), settings.retrieval.k)
