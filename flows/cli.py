"""The `dreamgym` command: one verb for one job.

Libraries are imported inside the verbs, after `flows.settings.prepare`, so that `--help` is quick and the settings count.
Exit codes: 0 done, 1 a stage failed, 2 the config or the command line is refused, 3 the dream may not be trusted, 4 the
promotion was refused (a normal outcome), 130 interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from components.errors import PROMOTION_REFUSED, DreamGymError

if TYPE_CHECKING:
    from components.config import Config

QUICK = Path("configs/quick.yaml")
INTERRUPTED = 130
_EPILOG = "Every verb takes KEY=VALUE overrides of the config, such as synthetic_rl.iterations=10; `dreamgym config --docs` lists all keys."

app = typer.Typer(
    name="dreamgym",
    help="Train an agent by RL inside a learned dream of its environment: from offline trajectories to a promoted policy.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
out, err = Console(), Console(stderr=True)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML or resolved JSON; default configs/quick.yaml, else the built-in defaults.")
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides on top of the config file.")]
Root = Annotated[Path | None, typer.Option(help="The repository to work in; default: the one around the current directory.")]
Debug = Annotated[bool, typer.Option("--debug", envvar="DREAMGYM_DEBUG", help="Show tracebacks of expected failures too.")]


def main() -> None:
    """Run the command."""
    app()


@app.command()
def retrain(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """From offline trajectories to a promoted policy: validate, experience model, dream, refine, evaluate, promote.

    What an earlier run made of the same inputs is reused. A fresh clone's data is pulled first.

    Examples:

        dreamgym retrain

        dreamgym retrain --config configs/cpu.yaml seed=1 sim_to_real.budget=2000
    """
    with reported(debug, resumes=True):
        settings, place = _begin(config, overrides, root)
        from flows.preflight import check_settings, ensure_data, require_repository, require_room
        from flows.summary import print_run

        require_repository(place)
        require_room(place)
        ensure_data(place, _say, backbone=not settings.backbone.path)
        check_settings(place, settings, config)
        _say("Starting (the libraries take some seconds to load) ...")
        from flows.retrain import retrain as flow

        _quiet(debug)
        began = time.monotonic()
        finished = flow(settings, place)
        print_run(out, finished.directory, finished.decision.promoted, finished.decision.reason, time.monotonic() - began)
        if not finished.decision.promoted:
            raise typer.Exit(PROMOTION_REFUSED)


@app.command()
def collect(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """Record offline trajectories in the real environment, as Parquet under data/, and version them with DVC.

    Expert, noisy, near-miss and random episodes of the training tasks, others to measure fidelity on, and the list of
    held-out games. The same config and seed give the same DVC hash. The old data stays in DVC's cache: what a fresh clone
    has not pulled yet is pulled first.

    Examples:

        dreamgym collect

        dreamgym collect data.train_tasks=600 data.near_miss=3
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from flows.preflight import complete_data, require_repository, require_room

        require_repository(place)
        require_room(place)
        complete_data(place, _say)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from flows.collect import collect_data

        _quiet(debug)
        with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=err) as bar:
            lines = {name: bar.add_task(f"{name} episodes", total=None) for name in ("train", "fidelity")}
            made = collect_data(settings, place, lambda name, done, count: bar.update(lines[name], completed=done, total=count))
        for name, (tasks, episodes, transitions) in made.counts.items():
            out.print(f"{name}: {tasks:,} tasks" + (f", {episodes:,} episodes, {transitions:,} transitions" if episodes else ""))
        out.print(f"DVC hash of data/: {made.version.hash} ({made.version.files} files, {made.version.size / 1e6:.2f} MB)", soft_wrap=True)
        out.print("The same config and seed give the same files, so the same hash.")
        out.print("To keep this version in git: git add data.dvc && git commit -m 'New data'")


@app.command()
def validate(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """Check the offline data with Great Expectations; bad episodes are set aside with their reason.

    Nothing under data/ is changed: the clean copy, the quarantine and the Data Docs lie in .dreamgym/validate/.

    Examples:

        dreamgym validate

        dreamgym validate data.quarantine_share=0
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from components.trajectories.store import DataLayout, read_tasks
        from flows.preflight import ensure_data
        from flows.summary import print_validation

        ensure_data(place, _say, backbone=False, versioned=False)
        layout = DataLayout(place / "data")
        tasks = {name: read_tasks(layout.tasks(name)) for name in ("train", "fidelity", "test")}
        for name in ("train", "fidelity"):
            from components.trajectories.validation import validate as check

            folder = place / ".dreamgym" / "validate" / name
            print_validation(out, name, check(layout.trajectories(name), tasks, settings.data, folder, split=name))


@app.command()
def evaluate(
    overrides: Overrides = None,
    policy: Annotated[str, typer.Option(help="A policy's directory, or `champion`: the promoted one in the registry.")] = "champion",
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Success of one policy on held-out real games, with its interval.

    Examples:

        dreamgym evaluate

        dreamgym evaluate --policy .dreamgym/stages/clone-0123456789ab/policy evaluation.tasks=100
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from flows.preflight import check_settings, ensure_data, require_room

        require_room(place)
        ensure_data(place, _say, backbone=False)
        check_settings(place, settings, config, training=False)
        from rich.table import Table

        from flows.score import score_policy
        from flows.summary import interval, level, share

        _quiet(debug)
        score = score_policy(settings, place, policy)
        table = Table(title=f"{score.policy} on held-out real games", title_justify="left")
        for name in ("games", "success", level(settings.evaluation.confidence), "n"):
            table.add_column(name)
        for name, estimate in {"all": score.success, **score.families}.items():
            entry = estimate.to_json()
            table.add_row(name, share(entry), interval(entry), str(estimate.n))
        out.print(table)
        out.print(f"{score.interactions:,} real interactions; MLflow run {score.mlflow_run_id}", soft_wrap=True)


@app.command()
def pool(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of finished runs, such as those of three seeds.")],
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the pooled numbers there too.")] = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Success of several runs on the same held-out games, each for itself and all together, with intervals over the games.

    Example:

        dreamgym pool 20260131-142530-9f3a 20260131-151200-01bc 20260131-160114-77de
    """
    with reported(debug):
        _, place = _begin(None, [], root)
        from components.evaluation.pooling import pool as pool_games
        from components.tracking.atomic import write_json
        from components.tracking.runs import find_run, read_games
        from flows.summary import print_pooled

        games = {(found := find_run(place / "runs", run)).name: read_games(found) for run in runs}
        pooled = {name: estimate.to_json() for name, estimate in pool_games(games).items()}
        rates = {name: {policy: sum(won.values()) / len(won) for policy, won in played.items()} for name, played in games.items()}
        print_pooled(out, rates, pooled)
        if json_file:
            write_json(json_file, {"runs": rates, "pooled": pooled})


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="`dream`: the dream against plain generate and the real environment.")],
    overrides: Overrides = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there, as in metrics.json.")] = None,
    model: Annotated[Path | None, typer.Option(help="An experience model's directory; default: of the newest finished stage.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Recorded episodes, dreamed side by side.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Repeats, over which medians and intervals are taken.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="torch threads of each contestant.")] = 1,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """How fast the dream is, beside others that do the very same steps in the same run: compare the ratios, not the seconds.

    `dream`: against transformers' `generate` with the full prompt of every step (and token for token the same, or it fails),
    and against the real environment in one process, stock and with our caches.

    Examples:

        dreamgym bench dream --json bench.json

        dreamgym bench dream --episodes 16 --rounds 3 --model .dreamgym/stages/experience_model-0123456789ab/model
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from components.tracking.atomic import write_json
        from components.tracking.runs import checked_metrics
        from flows.bench import bench_dream, check_name, newest_model, print_dream
        from flows.preflight import ensure_data

        check_name(name)
        directory = model or newest_model(place)
        ensure_data(place, _say, backbone=False, versioned=False)
        metrics = bench_dream(settings, place, directory, episodes=episodes, rounds=rounds, threads=threads, say=_say)
        print_dream(out, metrics, settings.evaluation.confidence)
        if json_file:
            write_json(json_file, checked_metrics({key: estimate.to_json() for key, estimate in metrics.items()}))


@app.command()
def play(
    overrides: Overrides = None,
    task: Annotated[str, typer.Option(help="Its number in the split, or its id.", metavar="ID|NUMBER")] = "1",
    split: Annotated[str, typer.Option(help="fidelity (held out), test (held out) or train.")] = "fidelity",
    model: Annotated[Path | None, typer.Option(help="An experience model's directory; default: the newest finished stage's.")] = None,
    side_by_side: Annotated[bool, typer.Option("--side-by-side", help="Play the same actions in the real environment too.")] = False,
    actions: Annotated[Path | None, typer.Option(metavar="FILE", help="Play its lines instead of asking.")] = None,
    transcript: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was shown: .txt, .md, .html or .svg.")] = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Step into the dream: type actions, see the dreamed states, the model's reasoning and demonstrations.

    Examples:

        dreamgym play

        dreamgym play --side-by-side --task 3 --split test
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        _say("Falling asleep (the libraries take some seconds to load) ...")
        from flows.play import Wishes
        from flows.play import play as play_task
        from flows.preflight import check_settings, ensure_data

        ensure_data(place, _say, backbone=False, versioned=False)
        check_settings(place, settings, config, training=False)
        play_task(settings, place, Wishes(task, split, model, side_by_side, actions, transcript), out)


@app.command()
def pretrain(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """Make the small backbone that both models start from (an hour or two of two cores) and version it with the data.

    A fresh clone does not need it: its backbone comes with the data. An interrupted one goes on where it was.

    Example:

        dreamgym pretrain pretrain.tokens=20000000
    """
    with reported(debug, resumes=True):
        settings, place = _begin(config, overrides, root)
        from flows.preflight import complete_data, require_device, require_repository, require_room

        require_repository(place)
        require_room(place)
        require_device(settings)
        complete_data(place, _say)
        from components.trajectories.snapshots import push, snapshot
        from flows.pretrain import pretrain as flow

        _quiet(debug)
        target = flow(settings, place)
        version = snapshot(place)
        push(place)
        out.print(f"Backbone: {target} (how it was made: card.json). DVC hash of data/: {version.hash}", soft_wrap=True)


@app.command("index")
def index_command(
    overrides: Overrides = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build it anew from the log, whatever is there.")] = False,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Build the vector index of the replay log, or bring it up to date, and measure what it finds.

    The Parquet log (data/trajectories, data/replay) is the truth; the index in .dreamgym/index/ can be made from it at any time.

    Examples:

        dreamgym index retrieval.index=chroma

        dreamgym index --rebuild retrieval.index=chroma retrieval.encoder=minilm
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from flows.preflight import ensure_data

        ensure_data(place, _say, backbone=False, versioned=False)
        _say("Reading the log, and encoding what has no vector yet ...")
        from flows.index import index_log
        from flows.summary import print_index

        print_index(out, index_log(settings, place, rebuild), settings.retrieval.k)


@app.command()
def fidelity(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """Examine an experience model: may its dream be trusted, and where not? What is not there yet is made, the policies too.

    Single steps of held-out data and of an untrained, a cloned and a dream-trained policy, and whole dreams replayed in the real engine.

    Example:

        dreamgym fidelity --config configs/quick.yaml
    """
    with reported(debug, resumes=True):
        settings, place = _prepared(config, overrides, root)
        from flows.fidelity import examine
        from flows.summary import print_fidelity

        _quiet(debug)
        run = examine(settings, place)
        print_fidelity(out, run.directory)


ablations = typer.Typer(help="What each part is worth: the same measurement of models that lack one thing each.", no_args_is_help=True)
app.add_typer(ablations, name="ablate")


@ablations.command("fidelity")
def ablate(
    overrides: Overrides = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    variants: Annotated[str, typer.Option(help="Variants, separated by commas; default: all of them.")] = "",
    sizes: Annotated[str, typer.Option(help="Offline transitions of the data-size curve; empty: no curve.")] = "500,2000,5000,10000",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the metrics go, one object a variant.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Where the figure of the bars goes (.png or .svg).")] = None,
    curve: Annotated[Path | None, typer.Option(help="Where the data-size curve goes (.png or .svg).")] = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Experience models without history, retrieval, reasoning, with expert data only, and with less data, over several seeds.

    Finished cells are kept: an interrupted study goes on where it was.

    Examples:

        dreamgym ablate fidelity --config configs/cpu.yaml --json docs/results/fidelity.json --figure docs/fidelity.png

        dreamgym ablate fidelity --seeds 0 --variants full,no-reasoning --sizes ""
    """
    with reported(debug, resumes=True):
        settings, place = _prepared(config, overrides, root)
        from flows.ablate import ablate_fidelity, chosen_variants, write_ablation

        wanted = chosen_variants(variants, sizes)
        numbers = _numbers(seeds, "--seeds")
        _quiet(debug)
        found = ablate_fidelity(settings, place, numbers, wanted)
        from flows.summary import print_ablation

        print_ablation(out, found)
        for path in write_ablation(found, json_file=json_file, figure=figure, curve=curve, root=place):
            out.print(f"Written: {path}", soft_wrap=True, highlight=False)


def _numbers(text: str, option: str) -> list[int]:
    from components.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() for part in parts):
        raise ConfigError(f"{option} is {text!r}.", "Expected whole numbers separated by commas.", f"Type {option} 0,1,2.")
    return [int(part) for part in parts]


def _prepared(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """The config and the repository, with the data there and the settings checked."""
    settings, place = _begin(config, overrides, root)
    from flows.preflight import check_settings, ensure_data, require_repository, require_room

    require_repository(place)
    require_room(place)
    ensure_data(place, _say, backbone=not settings.backbone.path)
    check_settings(place, settings, config)
    _say("Starting (the libraries take some seconds to load) ...")
    return settings, place


@app.command()
def ui(
    overrides: Overrides = None,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the MLflow UI.")] = 5000,
    prefect_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect UI.")] = 4200,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Look at runs and models (MLflow) and at flows (Prefect) in the browser; Ctrl-C stops both.

    Examples:

        dreamgym ui

        dreamgym ui --mlflow-port 5001 --prefect-port 4201
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from flows.services import Service, mlflow_service, prefect_service, require_free_ports, serve

        wanted = {"MLflow": mlflow_service(settings.tracking, place, mlflow_port), "Prefect": prefect_service(prefect_port)}
        services = [service for service in wanted.values() if isinstance(service, Service)]
        require_free_ports(services)
        for name, address in wanted.items():
            if isinstance(address, str):
                out.print(f"{name}: {address} (a server of your own)", soft_wrap=True)
        if services:
            _say("Starting, which takes about half a minute ...")
            serve(services, place, lambda service: out.print(f"{service.name}: {service.address}   (Ctrl-C stops it)", soft_wrap=True))


@app.command()
def doctor(overrides: Overrides = None, config: ConfigFile = None, root: Root = None, debug: Debug = False) -> None:
    """Check the set-up, one rung after the other: each says ok, or what is wrong and what to type.

    Exit code 0 if a run can start, 1 if something must be mended first.

    Example:

        dreamgym doctor
    """
    with reported(debug):
        settings, place = _begin(config, overrides, root)
        from flows.doctor import climb

        if not climb(settings, place, out):
            raise typer.Exit(1)


@app.command("config")
def show_config(
    overrides: Overrides = None,
    docs: Annotated[bool, typer.Option("--docs", help="Print all keys with meaning and default instead.")] = False,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Print the resolved config as JSON, which --config takes back, or the list of all keys.

    Examples:

        dreamgym config seed=3 > mine.json

        dreamgym config --docs > docs/configuration.md
    """
    with reported(debug):
        settings, _ = _begin(config, overrides, root)
        from components.config import dump_config
        from flows.config_docs import describe_keys

        typer.echo(describe_keys() if docs else dump_config(settings), nl=False)


@contextmanager
def reported(debug: bool, resumes: bool = False) -> Iterator[None]:
    """End the command with one red paragraph and the failure's exit code; a real bug keeps its traceback.

    `resumes` says whether the same command goes on where an interrupted one was.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = " Finished stages are kept: the same command goes on from there." if resumes else ""
        err.print(f"Interrupted.{kept}", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        from flows.failures import expected_failure

        failure = None if debug else expected_failure(error)
        if failure is None:
            raise
        _give_up(failure)


def _give_up(failure: DreamGymError) -> NoReturn:
    from flows.failures import print_failure

    print_failure(err, failure)
    raise typer.Exit(failure.exit_code) from None


def _begin(config: Path | None, overrides: list[str] | None, root: Path | None) -> tuple[Config, Path]:
    """The resolved config and the repository; the settings of all libraries are in place afterwards."""
    from flows.settings import prepare

    place = (root or _around(Path.cwd())).resolve()
    prepare(place)
    from components.config import load_config

    default = place / QUICK
    return load_config(config or (default if default.is_file() else None), overrides or []), place


def _around(directory: Path) -> Path:
    """The nearest directory at or above with a git repository in it; `directory` itself if there is none."""
    return next((place for place in (directory, *directory.parents) if (place / ".git").exists()), directory)


def _quiet(debug: bool) -> None:
    if not debug:
        from flows.failures import hush_tracebacks

        hush_tracebacks()


def _say(message: str) -> None:
    err.print(message, style="dim", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
