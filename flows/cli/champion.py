"""Commands that change the champion: `rollback` to an earlier one, `promote` by a person's decision."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.command import ConfigFile, Debug, Overrides, Root, load_settings, report_failures
from flows.printing.output import JsonFile, output

verbs = typer.Typer()


@verbs.command()
def rollback(
    to: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="Version to promote again. Default: the champion before the present one."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print what would change.")
    ] = False,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make an earlier policy the champion again.

    Nothing is deleted. The next promotion moves the alias again.

    Examples:

        dreamgym rollback --dry-run

        dreamgym rollback --to 3
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from components.tracking.mlflow_adapter.tracker import Tracker
        from flows.past_runs.rollback import plan_rollback, roll_back

        tracker = Tracker(settings.tracking, workspace)
        move = plan_rollback(tracker, to)
        origin = f", made by run {move.run_id}" if move.run_id else ""
        verb = "would become" if dry_run else "is"
        if not dry_run:
            roll_back(tracker, move)
        model = tracker.model_name("policy")
        page.text(f"Version {move.after} of {model} {verb} the champion (was {move.before}){origin}.")
        page.put(model=model, champion=move.after, before=move.before, run=move.run_id, done=not dry_run)


@verbs.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or `latest`.")],
    by: Annotated[str, typer.Option(metavar="NAME", help="Who decides.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")],
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Make the policy of a run the champion by a person's decision, whatever the promotion gate said.

    Name and reason are recorded with the version in MLflow. A run on logs alone has no other way to a
    champion but a live evaluation.

    Example:

        dreamgym promote latest --by 'Ada Okafor' --reason 'checked 50 episodes by hand'
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        from components.tracking.mlflow_adapter.tracker import Tracker
        from flows.past_runs.manual_promotion import promote_by_hand

        tracker = Tracker(settings.tracking, workspace)
        move = promote_by_hand(tracker, workspace, run, by, reason)
        model = tracker.model_name("policy")
        before = f"was {move.before}" if move.before else "there was none"
        page.text(f"Version {move.after} of {model} is the champion ({before}), made by run {move.run_id}.")
        page.text(f"Decided by {by}: {reason}")
        page.put(model=model, champion=move.after, before=move.before, run=move.run_id, by=by, reason=reason)
