"""Commands that evaluate: `evaluate` and `pool` for policies, `fidelity` for an experience model.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    check_machine,
    load_settings,
    prepare_flow_logs,
    prepare_run,
    print_status,
    report_failures,
)
from flows.printing.output import JsonFile, Output, output
from flows.printing.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from components.evaluation.metrics.intervals import Estimate
    from flows.jobs.score import Scores

verbs = typer.Typer()


@verbs.command()
def evaluate(
    overrides: Overrides = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Policy to evaluate: its directory; `champion`, the promoted one in MLflow; or `endpoint`, "
            "the language model at endpoint.url."
        ),
    ] = "champion",
    split: Annotated[
        Literal["validation", "test"],
        typer.Option(help="Games to play: validation, or test. Each reading of the test games is recorded."),
    ] = "validation",
    run: Annotated[
        str,
        typer.Option(help="Run id or `latest`: evaluate its three policies, in place of --policy."),
    ] = "",
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Measure the success rate of one policy, or of a run's three policies, on held-out real games.

    Each rate has a confidence interval. The number of games is evaluation.tasks.

    Examples:

        dreamgym evaluate

        dreamgym evaluate --run latest --split test

        dreamgym evaluate --policy .dreamgym/stages/clone-0123456789ab/policy evaluation.tasks=100

        dreamgym evaluate --policy endpoint endpoint.url=http://localhost:8000/v1 endpoint.model=NAME
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.checks.config_checks import check_settings
        from flows.checks.preflight import ensure_data

        check_machine(workspace)
        ensure_data(workspace, settings, print_status, backbone=False)
        check_settings(workspace, settings, config, training=False)
        from flows.jobs.score import score_policies
        from flows.jobs.score_endpoint import score_endpoint
        from flows.run.games.endpoint_games import ENDPOINT, require_endpoint

        prepare_flow_logs(debug)
        if policy == ENDPOINT and not run:
            require_endpoint(settings)
            scores = score_endpoint(settings, workspace, split)
        else:
            scores = score_policies(settings, workspace, policy, split, run)
        _print_scores(page, scores, settings.evaluation.confidence, one_table_per_policy=bool(run))


def _print_scores(page: Output, scores: Scores, confidence: float, *, one_table_per_policy: bool) -> None:
    from flows.printing.formats import rate_cells, rate_columns

    columns = [Column("games"), *rate_columns("success", confidence)]
    for name, score in scores.policies.items():
        rates = {"all": score.success, **score.families}
        rows = [[family, *rate_cells(rate.to_json())] for family, rate in rates.items()]
        title = f"{score.policy} on {scores.split} games (real)"
        page.table(f"success/{name}" if one_table_per_policy else "success", Table(title, columns, rows))
    page.text(f"{scores.interactions:,} real interactions; MLflow run {scores.mlflow_run_id}")
    if scores.endpoint:
        _print_endpoint(page, scores.endpoint)
    if scores.split == "test":
        page.text(
            f"The test games have now been read {scores.readings} times "
            "(.dreamgym/test_reads.jsonl lists each reading)."
        )
    policies = {name: str(score.policy) for name, score in scores.policies.items()}
    page.put(policies=policies, policy=next(iter(policies.values())), split=scores.split)
    page.put(test_readings=scores.readings)
    page.put(real_interactions=scores.interactions, mlflow_run=scores.mlflow_run_id)


def _print_endpoint(page: Output, endpoint: Mapping[str, Estimate]) -> None:
    read, written, calls, malformed, cut = (
        endpoint[name].value
        for name in (
            *("endpoint_prompt_tokens", "endpoint_completion_tokens", "endpoint_calls"),
            *("malformed_replies", "cut_replies"),
        )
    )
    page.text(
        f"{read:,.0f} tokens read and {written:,.0f} written in {calls:,.0f} requests; {malformed:.1%} of "
        f"the replies held no action, {cut:.1%} were cut at endpoint.max_tokens"
    )
    page.put(endpoint={name: dict(estimate.to_json()) for name, estimate in endpoint.items()})


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
    """Combine the success rates of several runs on the same held-out games.

    Prints each run, all runs together, and the differences between policies. The intervals hold for further
    games and further runs.

    Example:

        dreamgym pool 20260131-142530-9f3a 20260131-151200-01bc 20260131-160114-77de
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.evaluation.metrics.pooling import pool as pool_games
        from components.tracking.runs import find_run, read_games
        from components.tracking.same_policy import distinct_runs, require_different_policies
        from flows.cli.tables.methods_table import print_pooled

        directories = [find_run(workspace / "runs", run) for run in runs]
        require_different_policies(distinct_runs(directories), workspace / ".dreamgym" / "stages")
        games = {directory.name: read_games(directory) for directory in directories}
        pooled = {name: estimate.to_json() for name, estimate in pool_games(games).items()}
        rates = {
            run: {policy: sum(won.values()) / len(won) for policy, won in games_by_policy.items()}
            for run, games_by_policy in games.items()
        }
        print_pooled(page, rates, pooled)


@verbs.command()
def fidelity(
    overrides: Overrides = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="DIR|config",
            help="Experience model: its directory, or `config`: the config's own. Default: the champion's.",
        ),
    ] = "",
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Measure how faithful an experience model is to the real environment.

    Compared are single steps of held-out data, single steps of an untrained, a cloned and a dream-trained
    policy, and whole dreams replayed in the real engine. Missing models and policies are trained first.
    Of logs without a live world (environment.name=recorded) single steps alone are compared. With
    fidelity.judged=N a language model at endpoint.url judges N of the steps.

    Without a champion, and with experience_model.* on the command line, the config's own model is measured.

    Examples:

        dreamgym fidelity

        dreamgym fidelity --model config --config configs/quick.yaml
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = prepare_run(config, overrides, root)
        from components.tracking.chosen_model import choose_stage
        from flows.cli.tables.fidelity_table import print_fidelity
        from flows.jobs.fidelity import examine

        prepare_flow_logs(debug)
        stage, description = choose_stage(settings, workspace, model)
        print_status(f"Experience model: {description}.")
        page.put(model=description)
        run = examine(settings, workspace, stage)
        print_fidelity(page, run.directory)
