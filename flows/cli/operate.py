"""Commands about earlier runs (compare, lineage, rollback, resume, reproduce), and `deploy`.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    check_machine,
    exit_if_crashed,
    finish_retrain,
    load_settings,
    prepare_flow_logs,
    print_status,
    report_failures,
    run_study,
    show_progress,
)
from flows.printing.output import JsonFile, output

verbs = typer.Typer()

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's id under runs/, or `latest`.")]


@verbs.command()
def compare(
    first: RunName,
    second: RunName = "latest",
    everything: Annotated[
        bool,
        typer.Option("--all", help="Print also metrics whose difference has an interval that contains zero."),
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Print what differs between two runs: code, prompts, data, config, packages, machine and metrics.

    Differences of metrics have an interval. Success rates on the same games are compared game by game.

    Examples:

        dreamgym compare 20260131-142530-9f3a latest

        dreamgym compare 20260131-142530-9f3a 20260131-160114-77de --all --json changes.json
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from flows.past_runs.compare import compare_runs, print_comparison

        print_comparison(page, compare_runs(workspace, first, second), everything=everything)


@verbs.command()
def lineage(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY", help="`champion`, a version number, a run's id, or a policy's directory."
        ),
    ] = "champion",
    figure: Annotated[Path | None, typer.Option(help="Draw the lineage to this file (.png or .svg).")] = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Print what a policy was made from: earlier policies, experience model, replay buffer, data, commit.

    Examples:

        dreamgym lineage

        dreamgym lineage 20260131-142530-9f3a --figure lineage.png
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from flows.past_runs.lineage_tree import ancestors_of, draw_ancestors, print_ancestors

        ancestors = ancestors_of(settings, workspace, policy)
        print_ancestors(page, ancestors)
        if figure:
            draw_ancestors(ancestors, figure)
            page.text(f"Written: {figure}")


@verbs.command()
def resume(
    run: RunName = "latest",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run nothing; print which stages would be reused or run, and why."),
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Resume a failed or killed run of `retrain`, or cell of `study`.

    It first prints which stages are reused and which run. An interrupted stage continues from its checkpoint.
    The present code and data are used: a stage that depends on something that changed runs again.

    Examples:

        dreamgym resume --dry-run

        dreamgym resume 20260131-142530-9f3a
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from flows.checks.config_checks import check_settings
        from flows.checks.preflight import ensure_data, require_repository
        from flows.cli.tables.plan_table import print_plan
        from flows.jobs.studies.study import steps_of
        from flows.past_runs.resume import cell_of, resumable
        from flows.retrain import STEPS, retrain
        from flows.run.plan import plan

        manifest, settings = resumable(workspace, run)
        require_repository(workspace)
        check_machine(workspace)
        ensure_data(workspace, settings, print_status, backbone=not settings.backbone.path)
        check_settings(workspace, settings, None)
        cells, method = cell_of(manifest, workspace) if manifest.cell else (Path(), "")
        steps = steps_of(settings, method) if method else STEPS
        print_plan(page, manifest, plan(settings, workspace, steps))
        if dry_run:
            return
        prepare_flow_logs(debug)
        if method:
            cell, _ = run_study(page, settings, workspace, [method], [settings.seed], cells)
            exit_if_crashed(cell)
            return
        began = time.monotonic()
        with show_progress(settings, workspace, debug):
            result = retrain(settings, workspace)
        finish_retrain(page, result, time.monotonic() - began)


@verbs.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="COMMIT|RUN", help="A run's id, `latest`, or the commit of its DVC experiment."
        ),
    ] = "latest",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the git worktree that the new run was made in.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Repeat a past run from its commit, data and config, and compare every metric.

    No stage is reused. Differences of the packages and the machine are printed first.

    Exit code 0: all metrics are equal or within the rounding tolerance; 5: some are not.

    Examples:

        dreamgym reproduce 20260131-142530-9f3a

        dreamgym reproduce 1f0c9a2b --keep
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from components.errors import NOT_REPRODUCED
        from flows.cli.tables.reproduction_table import print_machine_changes, print_reproduction
        from flows.jobs.reproduce import discard
        from flows.jobs.reproduce import reproduce as repeat_run

        check_machine(workspace)
        result = repeat_run(
            workspace, what, print_status, lambda changes: print_machine_changes(page, changes)
        )
        print_reproduction(page, result)
        if keep:
            page.text(f"Kept: {result.worktree}")
            page.put(kept=str(result.worktree))
        else:
            discard(workspace, result)
        if not result.succeeded:
            raise typer.Exit(NOT_REPRODUCED)


@verbs.command()
def deploy(
    on: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Deployments whose schedules to switch on, separated by commas."),
    ] = "",
    off: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Deployments whose schedules to switch off, separated by commas."),
    ] = "",
    stale_days: Annotated[
        float,
        typer.Option(min=0.01, help="Days without a successful `retrain` after which the server notifies."),
    ] = 3.0,
    notify: Annotated[
        str,
        typer.Option(
            metavar="TYPE/NAME", help="Prefect block to notify, such as slack-webhook/ops. Empty: none."
        ),
    ] = "",
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Create or update deployments and automations on the Prefect server of PREFECT_API_URL.

    These are the work pool and the deployments of prefect.yaml, and the project's automations. Schedules that
    are not named keep their state; new ones are off. A second call changes nothing.

    Examples:

        dreamgym deploy --on retrain,watch-data

        dreamgym deploy --off retrain --notify slack-webhook/ops
    """
    with report_failures(debug), output(json_file) as page:
        _, workspace = load_settings(None, [], root)
        from flows.cli.tables.deployment_table import print_deployments
        from flows.deployment.deploy import deploy as deploy_to_server

        deployments = deploy_to_server(
            workspace, on=_split_names(on), off=_split_names(off), stale_days=stale_days, notify=notify
        )
        print_deployments(page, deployments)


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
