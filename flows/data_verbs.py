"""The verbs of `dreamgym data`: which version of data/ this clone uses.

Runs never move data.dvc or data/. These verbs do, because a person types them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from flows.command import Debug, Root, begin, out, reported, say

verbs = typer.Typer(name="data", help="Save, pull or switch the version of data/ that this clone uses.", no_args_is_help=True)
COMMIT = "To keep this version in git: git commit data.dvc -m 'New data'"


@verbs.command()
def save(root: Root = None, debug: Debug = False) -> None:
    """Version data/ as it lies: data.dvc names it afterwards. `dvc commit data.dvc` does the same for parts that data.dvc has already.

    Example:

        dreamgym data save
    """
    with reported(debug):
        _, place = begin(None, [], root)
        from components.trajectories.snapshots import push, snapshot
        from flows.preflight import require_repository

        require_repository(place)
        made = snapshot(place)
        remote = push(place)
        size = f"{made.files} files, {made.size / 1e6:.2f} MB"
        out.print(f"data.dvc names the version {made.hash} ({size}), pushed to {remote}.", soft_wrap=True)
        out.print(COMMIT)


@verbs.command()
def pull(
    force: Annotated[bool, typer.Option("--force", help="Replace files of data/ that are in no version, too.")] = False,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Bring data/ to the version that data.dvc names, from every cache and remote that DVC knows here, and verify each file.

    Example:

        dreamgym data pull
    """
    with reported(debug):
        _, place = begin(None, [], root)
        from components.trajectories.snapshots import pull as bring

        say("Looking for the version that data.dvc names ...")
        made = bring(place, force=force)
        out.print(f"data/ is the version {made.hash} ({made.files} files, {made.size / 1e6:.2f} MB).", soft_wrap=True)
