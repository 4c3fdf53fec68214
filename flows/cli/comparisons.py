"""Commands that compare variants: `ablate fidelity`, `study` and `transfer`.

Libraries are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

import re
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
    prepare_flow_logs,
    prepare_run,
    report_failures,
    run_study,
)
from flows.printing.output import JsonFile, output

verbs = typer.Typer()
ablations = typer.Typer(
    help="Measure models that each lack one part, to see what the part contributes.", no_args_is_help=True
)
verbs.add_typer(ablations, name="ablate")

Seeds = Annotated[str, typer.Option(help="Seeds to run, separated by commas.")]
Variants = Annotated[str, typer.Option(help="Variants to measure, separated by commas. Default: all.")]
Sizes = Annotated[
    str, typer.Option(help="Numbers of offline transitions for the data-size curve; empty: no curve.")
]
StudyCells = Annotated[
    Path | None,
    typer.Option(
        "--cells",
        metavar="DIR",
        help="Directory that finished cells are written to and read from. Default: docs/results/NAME of the "
        "config NAME.yaml.",
    ),
]
OptionalCells = Annotated[
    Path | None,
    typer.Option(
        "--cells", metavar="DIR", help="Directory that finished cells are written to and read from."
    ),
]
BarChart = Annotated[Path | None, typer.Option(help="Write the bar chart to this file (.png or .svg).")]
Curve = Annotated[Path | None, typer.Option(help="Write the data-size curve to this file (.png or .svg).")]
Methods = Annotated[
    str,
    typer.Option(
        help="Methods to run, separated by commas; graded and budgets stand for groups of them. "
        "Default: study.methods of the config."
    ),
]
FinishedOnly = Annotated[bool, typer.Option("--finished", help="Only read the finished cells; run no other.")]
Against = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="The method that others are compared with; ablations keep theirs. Default: the first of "
        "study.methods, else gigpo-real.",
    ),
]
Figures = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the figures to this directory.")]
StudyTable = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the table into this Markdown file, between `<!-- study:begin -->` and `end`. "
        "The marks have the name of the --cells directory.",
    ),
]


@ablations.command("fidelity")
def ablate_fidelity(
    overrides: Overrides = None,
    seeds: Seeds = "0,1,2",
    variants: Variants = "",
    sizes: Sizes = "500,2000,5000,10000",
    cells: OptionalCells = None,
    json_file: JsonFile = None,
    figure: BarChart = None,
    curve: Curve = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Compare experience models that lack history, retrieval, reasoning, imperfect data, or some of the data.

    Finished stages are kept, so an interrupted ablation continues; with --cells also on another machine.

    Examples:

        dreamgym ablate fidelity --config configs/cpu.yaml --cells docs/results/fidelity --json
        docs/results/fidelity.json

        dreamgym ablate fidelity --seeds 0 --variants full,no-reasoning --sizes ""
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = prepare_run(config, overrides, root)
        from flows.jobs.studies import ablation

        chosen = ablation.chosen_variants(variants, sizes)
        ablation.require_figure_formats(figure, curve)
        directory = workspace / cells if cells else None
        check_machine(workspace, figure, curve, directory)
        seed_list = _parse_seeds(seeds)
        prepare_flow_logs(debug)
        metrics = ablation.ablate_fidelity(settings, workspace, seed_list, chosen, directory)
        from flows.cli.tables.fidelity_table import print_ablation

        print_ablation(page, metrics)
        total = ablation.full_size(settings, workspace)
        for path in ablation.write_ablation(metrics, figure=figure, curve=curve, total=total):
            page.text(f"Written: {path}")


@verbs.command()
def study(
    overrides: Overrides = None,
    methods: Methods = "",
    seeds: Seeds = "0,1,2",
    cells: StudyCells = None,
    finished: FinishedOnly = False,
    against: Against = "",
    json_file: JsonFile = None,
    figures: Figures = None,
    table: StudyTable = None,
    config: ConfigFile = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Compare training methods over several seeds on the same held-out games, with the cost of each.

    Methods are, for example, RL in the dream and RL in the real environment. A cell is one method with one
    seed. Its result is a small file, so an interrupted study continues, also on another machine. A cell that
    crashes is listed in the table, and the others run on.

    Examples:

        dreamgym study --config configs/study.yaml --json docs/results/study.json --figures docs/images
        --table docs/all-tables.md

        dreamgym study --methods clone,gigpo-real,dream-gigpo --seeds 0

        dreamgym study --config configs/study-logs-only.yaml --seeds 0,1 --finished

        dreamgym study --methods clone,clone-successes,dream-gigpo --against clone-successes

        dreamgym study --config configs/study-logs-only.yaml --methods budgets --cells
        docs/results/study-budgets

        dreamgym study --config configs/quick-browser.yaml --cells docs/results/study-browser --methods
        clone,gigpo-real,s2r-gigpo
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        settings, workspace = prepare_run(config, overrides, root)
        from components.evaluation.report.document_tables import text_around_table
        from flows.jobs.studies.method import BASE
        from flows.jobs.studies.method_config import chosen_methods
        from flows.jobs.studies.study import write_study
        from flows.jobs.studies.study_methods import METHODS

        method_names = chosen_methods(settings, methods)
        seed_list = _parse_seeds(seeds)
        directory = cells or Path("docs/results") / (config.stem if config else "study")
        base = against or next((name for name in settings.study.methods if name in METHODS), BASE)
        check_machine(workspace, figures, workspace / directory)
        if table:
            text_around_table(table, directory.name)  # refuses a file without the marks before hours of work
        prepare_flow_logs(debug)
        cells_by_method, metrics = run_study(
            page,
            settings,
            workspace,
            method_names,
            seed_list,
            workspace / directory,
            finished=finished,
            against=base,
        )
        for path in write_study(cells_by_method, metrics, None, figures, table, directory.name, against=base):
            page.text(f"Written: {path}")
        exit_if_crashed(cells_by_method)


@verbs.command()
def transfer(
    configs: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG... [KEY=VALUE]...",
            help="One config file for each environment; the overrides apply to all of them.",
        ),
    ],
    json_file: JsonFile = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the tables into this Markdown file, between `<!-- transfer:begin -->` and `end`.",
        ),
    ] = None,
    root: Root = None,
    debug: Debug = False,
) -> None:
    """Evaluate the policies and the experience model of each environment in every other one.

    Nothing is trained on the other environment. Missing models and policies are trained on their own one.

    Example:

        dreamgym transfer configs/quick.yaml configs/quick-webshop.yaml configs/quick-browser.yaml --json
        docs/results/transfer.json
    """
    with report_failures(debug, resumes=True), output(json_file) as page:
        from components.evaluation.report.document_tables import text_around_table

        if table:
            text_around_table(table, "transfer")  # refuses a file without the marks before hours of work
        overrides = [argument for argument in configs if "=" in argument]
        files = [Path(argument) for argument in configs if "=" not in argument]
        settings = [prepare_run(file, overrides, root) for file in files]
        from flows.cli.tables.fidelity_table import print_transfer
        from flows.jobs.studies.transfer import by_environment, write_transfer
        from flows.jobs.studies.transfer import transfer as run_transfer

        environments = by_environment([config for config, _ in settings])
        prepare_flow_logs(debug)
        metrics = run_transfer(environments, settings[0][1])
        print_transfer(page, metrics)
        if table:
            write_transfer(metrics, table)
            page.text(f"Written: {table}")


def _parse_seeds(text: str) -> list[int]:
    """Return the integers of `--seeds`. Raises ConfigError for anything else, and for a repeated one."""
    from components.config.reading.config_values import LARGEST_INTEGER
    from components.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(
        re.fullmatch("0|[1-9][0-9]{0,18}", part) and int(part) <= LARGEST_INTEGER for part in parts
    ):
        expected = f"Expected integers from 0 to {LARGEST_INTEGER} in decimal digits, separated by commas."
        raise ConfigError(f"--seeds is {text!r}.", expected, "Type --seeds 0,1,2.")
    if len(set(parts)) < len(parts):
        raise ConfigError(
            f"--seeds is {text!r}: a seed is repeated.", "Expected each seed once.", "Type --seeds 0,1,2."
        )
    return [int(part) for part in parts]
