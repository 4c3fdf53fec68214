"""The verbs that open worlds: the dream to a person and to other trainers, and a world of one's own to this
pipeline.

Libraries are imported inside the verbs, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import ConfigFile, Debug, Overrides, Root, begin, out, reported, say
from flows.printing.output import JsonFile, output

verbs = typer.Typer()


@verbs.command()
def play(
    overrides: Overrides = None,
    task: Annotated[str, typer.Option(help="Its number in the split, or its id.", metavar="ID|NUMBER")] = "1",
    split: Annotated[str, typer.Option(help="fidelity (held out), test (held out) or train.")] = "fidelity",
    model: Annotated[
        Path | None,
        typer.Option(help="An experience model's directory; default: the champion's, else the newest."),
    ] = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Play the same actions in the real environment too.")
    ] = False,
    actions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play its lines instead of asking.")
    ] = None,
    transcript: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what was shown: .txt, .md, .html or .svg.")
    ] = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Step into the dream: type actions, see the dreamed states, the model's reasoning and demonstrations.

    With --json the episode is printed as one JSON document: its task, and each step with state, action, next
    state, reward and done. What a person sees and types is on stderr then, and the document follows when they
    leave.

    Examples:

        dreamgym play

        dreamgym play --side-by-side --task 3 --split test

        dreamgym play --actions actions.txt --json
    """
    with reported(debug), output(json_file) as page:
        settings, place = begin(config, overrides, root)
        say("Falling asleep (the libraries take some seconds to load) ...")
        from flows.checks.preflight import check_settings, ensure_data
        from flows.cli.play.play_session import Wishes
        from flows.cli.play.play_session import play as play_task

        ensure_data(place, settings, say, backbone=False, versioned=False)
        check_settings(place, settings, config, training=False)
        page.put(
            **play_task(
                settings, place, Wishes(task, split, model, side_by_side, actions, transcript), page.console
            )
        )


@verbs.command()
def serve(
    overrides: Overrides = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    split: Annotated[
        str, typer.Option(help="Whose tasks are served: train, fidelity (held out) or test (held out).")
    ] = "train",
    sessions: Annotated[
        int,
        typer.Option(
            min=1, max=1024, help="Most sessions at the same time; each takes memory for an episode."
        ),
    ] = 16,
    idle_seconds: Annotated[
        float, typer.Option(min=0.1, help="A session that asks for nothing for so long is closed.")
    ] = 600.0,
    max_chars: Annotated[int, typer.Option(min=1, max=100_000, help="Longest action, in characters.")] = 500,
    model: Annotated[
        Path | None,
        typer.Option(help="An experience model's directory; default: the champion's, else the newest."),
    ] = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Offer a trained dream as an OpenEnv server, so that any trainer that speaks OpenEnv can train in it.
    Ctrl-C ends it.

    Clients send the header `Authorization: Bearer TOKEN` with the secret that DREAMGYM_SERVE_TOKEN holds
    here. Episodes end after environment.max_steps.

    Examples:

        dreamgym serve --sessions 32

        DREAMGYM_SERVE_TOKEN=$(openssl rand -hex 24) dreamgym serve --host 0.0.0.0
    """
    with reported(debug):
        settings, place = begin(config, overrides, root)
        say("Falling asleep (the libraries take some seconds to load) ...")
        from flows.checks.preflight import check_settings, ensure_data
        from flows.jobs.serve import Offer
        from flows.jobs.serve import serve as run

        ensure_data(place, settings, say, backbone=False, versioned=False)
        check_settings(place, settings, config, training=False)

        def ready(address: str, served: str) -> None:
            out.print(f"{address}   ({served}; Ctrl-C ends it)", soft_wrap=True, highlight=False)

        run(settings, place, Offer(host, port, split, sessions, idle_seconds, max_chars, model), ready)
        say("Awake: the port is free, all sessions are closed.")


@verbs.command("check-environment")
def check_environment(
    overrides: Overrides = None,
    json_file: JsonFile = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Put an environment's adapter to the test: every promise that the stages rely on, on a few tasks of its
    own.

    Exit code 0 if every promise is kept, 1 if one is not. `doubt` names a part that the world does without,
    and what to set then.

    Examples:

        dreamgym check-environment

        dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter
    """
    with reported(debug), output(json_file) as page:
        settings, _ = begin(config, overrides, root)
        from components.environments import make_adapter
        from components.environments.contract.adapter_contract import check
        from components.environments.contract.finding import Finding
        from flows.checks.doctor import print_rung

        def told(finding: Finding) -> None:
            print_rung(page, finding.promise, finding.state, finding.found, finding.next_step)

        kept = check(settings, make_adapter(settings.environment), told)
        page.text(
            "Every promise is kept." if kept else "Mend what is wrong from the top down, then ask again."
        )
        page.put(kept=kept)
        if not kept:
            raise typer.Exit(1)
