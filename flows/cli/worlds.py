"""Commands that open an environment: `play` and `serve` a dream, `check-environment` tests an adapter.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import (
    ConfigFile,
    Debug,
    Overrides,
    Root,
    load_settings,
    out,
    print_status,
    report_failures,
)
from flows.printing.output import JsonFile, output

verbs = typer.Typer()

Model = Annotated[
    Path | None,
    typer.Option(help="Directory of the experience model. Default: the champion's, else the newest."),
]
ActionFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Play the actions in this file, one a line, instead of asking."),
]
Transcript = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write all that was shown to this file: .txt, .md, .html or .svg."),
]
Sessions = Annotated[
    int,
    typer.Option(min=1, max=1024, help="Most sessions at the same time. Each needs memory for one episode."),
]
IdleSeconds = Annotated[
    float, typer.Option(min=0.1, help="Seconds without a request after which a session is closed.")
]


@verbs.command()
def play(
    overrides: Overrides = None,
    task: Annotated[
        str,
        typer.Option(help="Task to play: its number in the split, from 1, or its id.", metavar="ID|NUMBER"),
    ] = "1",
    split: Annotated[
        str, typer.Option(help="Split of the task: fidelity (held out), test (held out) or train.")
    ] = "fidelity",
    model: Model = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Play the same actions in the real environment too.")
    ] = False,
    actions: ActionFile = None,
    transcript: Transcript = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Play in the dream: type actions, see the predicted states, the model's reasoning and demonstrations.

    With --json the episode is printed as one JSON document at the end: its task, and each step with state,
    action, next state, reward and done. The interactive text goes to stderr then.

    Examples:

        dreamgym play

        dreamgym play --side-by-side --task 3 --split test

        dreamgym play --actions actions.txt --json
    """
    with report_failures(debug), output(json_file) as page:
        settings, workspace = load_settings(config, overrides, root)
        print_status("Loading the dream (the libraries take some seconds) ...")
        from flows.checks.config_checks import check_settings
        from flows.checks.preflight import ensure_data
        from flows.cli.play.play_session import PlaySettings
        from flows.cli.play.play_session import play as play_task

        ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
        check_settings(workspace, settings, config, training=False)
        options = PlaySettings(task, split, model, side_by_side, actions, transcript)
        page.put(**play_task(settings, workspace, options, page.console))


@verbs.command()
def serve(
    overrides: Overrides = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    split: Annotated[
        str, typer.Option(help="Split whose tasks are served: train, fidelity (held out) or test (held out).")
    ] = "train",
    sessions: Sessions = 16,
    idle_seconds: IdleSeconds = 600.0,
    max_chars: Annotated[int, typer.Option(min=1, max=100_000, help="Longest action, in characters.")] = 500,
    model: Model = None,
    replicas: Annotated[
        str,
        typer.Option(
            metavar="ADDRESSES",
            help="Serve no dream of its own, but these servers of one dream, as http://HOST:PORT,...",
        ),
    ] = "",
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Serve a trained dream over OpenEnv, for any trainer that supports that protocol; Ctrl-C stops it.

    With a token, clients send the header `Authorization: Bearer TOKEN`. The token is the value of
    DREAMGYM_SERVE_TOKEN here. Episodes end after environment.max_steps steps.

    With --replicas it is a balancer: a session stays with one server, and goes on with another one if that
    server ends. The servers have the same token.

    Examples:

        dreamgym serve --sessions 32

        DREAMGYM_SERVE_TOKEN=$(openssl rand -hex 24) dreamgym serve --host 0.0.0.0

        dreamgym serve --port 8000 --replicas http://10.0.0.3:8000,http://10.0.0.4:8000
    """
    with report_failures(debug):
        settings, workspace = load_settings(config, overrides, root)
        what = "libraries" if replicas else "dream (the libraries take some seconds)"
        print_status(f"Loading the {what} ...")
        from flows.checks.config_checks import check_settings
        from flows.checks.preflight import ensure_data
        from flows.jobs.serve import ServeSettings, balance
        from flows.jobs.serve import serve as serve_dream

        def show_address(address: str, description: str) -> None:
            out.print(f"{address}   ({description}; Ctrl-C ends it)", soft_wrap=True, highlight=False)

        options = ServeSettings(host, port, split, sessions, idle_seconds, max_chars, model)
        if replicas:
            balance(settings, [part.strip() for part in replicas.split(",")], options, show_address)
        else:
            ensure_data(workspace, settings, print_status, backbone=False, versioned=False)
            check_settings(workspace, settings, config, training=False)
            serve_dream(settings, workspace, options, show_address)
        print_status("Stopped: all sessions are closed, and the port is free.")


@verbs.command("check-environment")
def check_environment(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Test an environment's adapter: everything that the stages rely on, on a few of its tasks.

    Exit code 0 if the adapter keeps the whole contract, 1 if not. `doubt` names an optional part that the
    adapter lacks, and what to set in the config.

    Examples:

        dreamgym check-environment

        dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter
    """
    with report_failures(debug), output(json_file) as page:
        settings, _ = load_settings(config, overrides, root)
        from components.environments import make_adapter
        from components.environments.contract.adapter_contract import check
        from components.environments.contract.finding import Finding
        from flows.checks.doctor import print_check

        def print_finding(finding: Finding) -> None:
            print_check(page, finding.promise, finding.state, finding.found, finding.next_step)

        is_kept = check(settings, make_adapter(settings.environment), print_finding)
        page.text(
            "The adapter keeps the whole contract."
            if is_kept
            else "Correct the first `wrong` line, then type the same command again."
        )
        page.put(kept=is_kept)
        if not is_kept:
            raise typer.Exit(1)
