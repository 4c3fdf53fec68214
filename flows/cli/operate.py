"""The verbs that operate what has been run: what differs between two runs, where a policy comes from, back to
an earlier champion.

Libraries are imported inside the verbs, so that `--help` is quick.
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
    begin,
    check_machine,
    fail_on_crash,
    finish_retrain,
    make_study,
    quiet,
    reported,
    say,
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
        typer.Option("--all", help="Also the changes of metrics whose interval does not leave out zero."),
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """What differs between two runs, and nothing else: code, prompts, data, config, packages, machine; and
    the metrics, with intervals.

    Success rates on the same games are compared game by game.

    Examples:

        dreamgym compare 20260131-142530-9f3a latest

        dreamgym compare 20260131-142530-9f3a 20260131-160114-77de --all --json changes.json
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from flows.past_runs.compare import compare_runs, print_comparison

        print_comparison(page, compare_runs(place, first, second), everything=everything)


@verbs.command()
def lineage(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY", help="`champion`, a version of it, a run's id, or a policy's directory."
        ),
    ] = "champion",
    figure: Annotated[Path | None, typer.Option(help="Draw it there (.png or .svg).")] = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Where a policy comes from: refined, dreamed, cloned, its experience model and replay buffer, the
    trajectories, the commit.

    Examples:

        dreamgym lineage

        dreamgym lineage 20260131-142530-9f3a --figure lineage.png
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from flows.past_runs.lineage_tree import ancestors_of, draw_ancestors, print_ancestors

        found = ancestors_of(settings, place, policy)
        print_ancestors(page, found)
        if figure:
            draw_ancestors(found, figure)
            page.text(f"Written: {figure}")


@verbs.command()
def rollback(
    to: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="A version that was champion; default: the one before the present one."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make an earlier policy the champion again. Nothing is deleted; the next promotion moves the alias on.

    Examples:

        dreamgym rollback --dry-run

        dreamgym rollback --to 3
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        from components.tracking.mlflow_adapter.tracker import Tracker
        from flows.past_runs.rollback import plan_rollback, roll_back

        tracker = Tracker(settings.tracking, place)
        move = plan_rollback(tracker, to)
        made = f", made by run {move.run_id}" if move.run_id else ""
        verb = "would become" if dry_run else "is"
        if not dry_run:
            roll_back(tracker, move)
        model = tracker.model_name("policy")
        page.text(f"Version {move.after} of {model} {verb} the champion (was {move.before}){made}.")
        page.put(model=model, champion=move.after, before=move.before, run=move.run_id, done=not dry_run)


@verbs.command()
def resume(
    run: RunName = "latest",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is reused, what runs, and why.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Go on with a run of `retrain`, or a cell of `study`, that failed or was killed; first, what is reused
    and what runs again.

    A stage that was interrupted goes on from its checkpoint. What is code's or data's since the run began is
    what runs now: a stage that depends on a change is made anew, and the list says so before anything starts.

    Examples:

        dreamgym resume --dry-run

        dreamgym resume 20260131-142530-9f3a
    """
    with reported(debug, resumes=True), output(json_file) as page:
        _, place = begin(None, [], root)
        from flows.checks.preflight import check_settings, ensure_data, require_repository
        from flows.cli.summary import print_plan
        from flows.jobs.study import steps_of
        from flows.past_runs.resume import cell_of, resumable
        from flows.retrain import STEPS, retrain
        from flows.run.plan import plan

        manifest, settings = resumable(place, run)
        require_repository(place)
        check_machine(place)
        ensure_data(place, settings, say, backbone=not settings.backbone.path)
        check_settings(place, settings, None)
        cells, method = cell_of(manifest, place) if manifest.cell else (Path(), "")
        print_plan(page, manifest, plan(settings, place, steps_of(settings, method) if method else STEPS))
        if dry_run:
            return
        quiet(debug)
        if method:
            cell, _ = make_study(page, settings, place, [method], [settings.seed], cells)
            fail_on_crash(cell)
            return
        began = time.monotonic()
        finished = retrain(settings, place)
        finish_retrain(page, finished, time.monotonic() - began)


@verbs.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="COMMIT|RUN", help="A run's id, `latest`, or the commit of its DVC experiment."
        ),
    ] = "latest",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the worktree with the repetition where it is.")
    ] = False,
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make a past run again from its commit, its data and its config, all anew, and say metric by metric
    whether it came back.

    First it says what of the packages and the machine is not as it was.

    Exit code 0: all equal or within the tolerance of rounding; 5: some are not.

    Examples:

        dreamgym reproduce 20260131-142530-9f3a

        dreamgym reproduce 1f0c9a2b --keep
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from components.errors import NOT_REPRODUCED
        from flows.cli.summary import print_reproduction, print_surroundings
        from flows.jobs.reproduce import discard
        from flows.jobs.reproduce import reproduce as make_again

        check_machine(place)
        found = make_again(place, what, say, lambda surroundings: print_surroundings(page, surroundings))
        print_reproduction(page, found)
        if keep:
            page.text(f"Kept: {found.place}")
            page.put(kept=str(found.place))
        else:
            discard(place, found)
        if not found.succeeded:
            raise typer.Exit(NOT_REPRODUCED)


@verbs.command()
def deploy(
    on: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Deployments whose schedules are switched on, separated by commas."
        ),
    ] = "",
    off: Annotated[str, typer.Option(metavar="NAMES", help="Those that are switched off.")] = "",
    stale_days: Annotated[
        float,
        typer.Option(min=0.01, help="Days without a success of `retrain` after which the server tells."),
    ] = 3.0,
    notify: Annotated[
        str,
        typer.Option(metavar="TYPE/NAME", help="The server's block that is told, such as slack-webhook/ops."),
    ] = "",
    json_file: JsonFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Bring the schedule to the Prefect server of PREFECT_API_URL: work pool, the deployments of
    prefect.yaml, automations.

    Schedules that are not named stay as they are on the server; new ones are off. Doing it again changes
    nothing.

    Examples:

        dreamgym deploy --on retrain,watch-data

        dreamgym deploy --off retrain --notify slack-webhook/ops
    """
    with reported(debug), output(json_file) as page:
        _, place = begin(None, [], root)
        from flows.cli.summary import print_deployments
        from flows.deployment.deploy import deploy as bring

        print_deployments(
            page, bring(place, on=_names(on), off=_names(off), stale_days=stale_days, notify=notify)
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
