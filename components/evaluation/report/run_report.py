"""The report of a run, as one Markdown file and one HTML file that needs nothing but itself.

Both are renderings of the same sections. The Markdown is also what Prefect shows as an artifact, so its
curves are lines of blocks; the HTML carries its pictures inside. All text of environments and models is
escaped: a state that says "<script>" is shown, not run. What a run does not have (a stage without curves, no
champion, no examples) is left out.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.evaluation.report.curriculum_figure import curriculum_svg, told
from components.evaluation.report.episode import episode_of
from components.evaluation.report.metric_titles import condition_in_words, explanation_of, group_of, title_of
from components.evaluation.report.render import (
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Heading,
    Name,
    Section,
    Table,
    Text,
    blocks_to_markdown,
    to_html,
    to_markdown,
)
from components.evaluation.report.report_curves import all_curves, learning_curves

_ORDER = {"cloned": 0, "dreamed": 1, "refined": 2}
_INTERACTIONS = r"(.*/)?(real|check)_interactions"
_COSTS = rf"{_INTERACTIONS}|cost/.*"
_TRUST = (
    *(
        "next_state_exact(/determined)?",
        "hallucination_rate(/determined)?",
        "inconsistency_rate",
        "unparsable_rate",
    ),
    *(
        "reward_precision(/near_miss)?",
        "reward_recall(/near_miss)?",
        "policy_reward_precision",
        "policy_reward_recall",
    ),
    *("rollout_agreement", "dreamed_success_rate", "real_success_rate", "refused_answers_a_step"),
)
_FILES = {
    "metrics.json": "every metric with its n and interval",
    "manifest.json": "code, data, config, versions and hardware that made the run",
    "config.json": "the resolved config; --config takes it",
    "git.diff": "what the workspace had beside the commit",
}
_POLICIES = {
    "cloned": "imitates the logged episodes",
    "dreamed": "the cloned one after RL in the dream",
    "refined": "the dreamed one after a few real interactions",
}


@dataclass
class ReportData:
    """What a report is made of.

    Attributes:
        metrics: name -> {"value", "n", "low", "high"}, as in metrics.json.
        stages: in order, each with `name`, `seconds`, `reused` and, if known, `key`.
        series: name -> one value an iteration, such as `synthetic_rl/success_rate`.
        decision: `Decision.to_json()`, empty if the gate was not asked.
        notes: sentences shown under the headline.
        curriculum: one entry an iteration of RL in the dream (`Curriculum.life`), none if tasks were drawn
        evenly.
        examples: dreamed episodes as `experience.replay_record` writes them, or None if the run has no such
        check.
        head: pairs of a name and its text, shown above all else: when, where and of what the run was made.
        confidence: level of the metrics' intervals.
        next_steps: commands or paths to look at next, beside the run's own files.
    """

    run_id: str
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: Sequence[Mapping[str, Any]] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    decision: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    curriculum: Sequence[Mapping[str, Any]] = ()
    examples: Sequence[Mapping[str, Any]] | None = None
    head: Sequence[tuple[str, str]] = ()
    next_steps: Sequence[str] = ()
    confidence: float = 0.95


def write_report(run_directory: Path, data: ReportData) -> tuple[Path, Path]:
    """Write `report.md` and `report.html` and return their paths. Raises DataError if the disk refuses."""
    title, head, sections = f"Run {data.run_id}", _head(data), list(report_sections(data, run_directory))
    paths = run_directory / "report.md", run_directory / "report.html"
    for path, text in zip(
        paths, (to_markdown(title, head, sections), to_html(title, head, sections)), strict=True
    ):
        _write(path, text)
    return paths


def summary(data: ReportData) -> str:
    """The verdict with its conditions, the policies' success and the costs, as Markdown: what one reads
    before all else.
    """
    return blocks_to_markdown([*_decision(data.decision), *_headline(data)])


def report_sections(data: ReportData, run_directory: Path) -> Iterator[Section]:
    """The sections that this run has something for, in the order in which one reads them."""
    for title, blocks in (
        ("Success on held-out real games", _headline(data)),
        ("Decision", _decision(data.decision)),
        ("Learning", learning_curves(data.series)),
        ("Fidelity of the experience model", _fidelity(data)),
        ("Dreamed episodes", _examples(data.examples)),
        ("Curriculum", _curriculum(data)),
        ("Costs", _metric_rows(data, _COSTS, group_first=True)),
        ("Stages", _stages(data.stages)),
        ("Where to look next", _next(data, run_directory)),
        ("All curves", all_curves(data.series)),
        ("All metrics", _all_metrics(data)),
    ):
        if blocks:
            yield Section(title, blocks, folded=title.startswith("All "))


def _head(data: ReportData) -> list[Block]:
    """What made the run, and the verdict in one word."""
    entries = list(data.head)
    if data.decision:
        entries.append(("decision", "promoted" if data.decision.get("promoted") else "not promoted"))
    return [Facts(entries)] if entries else []


def _headline(data: ReportData) -> list[Block]:
    bars = _success_bars(data.metrics)
    notes: list[Block] = [
        Text(text) for text in (_spent(data.metrics), _tokens(data.metrics), *data.notes) if text
    ]
    if not bars:
        return [Text("This run has not come to the evaluation."), *notes]
    rows: list[list[Cell]] = [
        [Name(bar.label, "", _POLICIES.get(bar.label, "")), *_rate(bar)] for bar in bars
    ]
    figure = Bars(
        "Success rate of each policy: the share of held-out games that it solves. The line is the interval.",
        bars,
    )
    return [figure, Table(["policy", "success", _interval(data), "games"], rows), *notes]


def _rate(bar: Bar) -> list[str]:
    return [f"{bar.value:.1%}", f"{bar.low:.1%} to {bar.high:.1%}", f"{bar.n:,}"]


def _success_bars(metrics: Mapping[str, Mapping[str, Any]]) -> list[Bar]:
    """The policies' success rates: cloned, dreamed, refined, then any others by name."""
    found = {}
    for name, entry in metrics.items():
        match = re.fullmatch(r"evaluate/(?:([^/]+)/)?success_rate", name)
        if match and _measured(entry):
            found[match[1] or "policy"] = entry
    policies = sorted(found, key=lambda policy: (_ORDER.get(policy, len(_ORDER)), policy))
    return [_bar(policy, found[policy]) for policy in policies]


def _spent(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    training, checks = metrics.get("cost/real_interactions"), metrics.get("cost/check_interactions")
    if training and checks:
        return (
            f"Real interactions spent: {_value(training)} for training, {_value(checks)} for checks and "
            "evaluation."
        )
    names = [
        name
        for name in metrics
        if re.fullmatch(_INTERACTIONS, name) and metrics[name].get("value") is not None
    ]
    spent = [f"{_value(metrics[name])} ({name})" for name in names]
    return f"Real interactions spent: {', '.join(spent)}." if spent else ""


def _tokens(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    trained, generated = metrics.get("cost/tokens_trained"), metrics.get("cost/tokens_generated")
    return (
        f"Tokens: {_value(trained)} trained on, {_value(generated)} generated."
        if trained and generated
        else ""
    )


def _decision(decision: Mapping[str, Any]) -> list[Block]:
    if not decision:
        return []
    promoted = bool(decision.get("promoted"))
    rows: list[list[Cell]] = []
    for condition in decision.get("conditions", ()):
        low, high = _number(condition.get("low")), _number(condition.get("high"))
        metric = str(condition.get("metric", ""))
        names = [
            Name(condition_in_words(str(condition.get("name", ""))), str(condition.get("name", ""))),
            Name(title_of(metric), metric, explanation_of(metric)),
        ]
        numbers = [
            _number(condition.get("value")),
            f"{low} to {high}",
            str(condition.get("n", "")),
            _number(condition.get("threshold")),
        ]
        rows.append([*names, *numbers, "pass" if condition.get("passed") else "fail"])
    verdict = Text(
        str(decision.get("reason", "")), badge="Promoted" if promoted else "Not promoted", good=promoted
    )
    return [verdict, Table(["condition", "metric", "value", "interval", "n", "needed", "result"], rows)]


def _fidelity(data: ReportData) -> list[Block]:
    """The metrics that say whether the dream may be trusted as a table, and exact next states, split in
    whatever way they were, as bars.
    """
    measured = {
        name: entry
        for name, entry in data.metrics.items()
        if name.startswith("fidelity/") and _measured(entry)
    }
    exact = {name: entry for name, entry in measured.items() if "next_state_exact" in name.split("/")}
    bars = [_bar(_split_in_words(name), entry) for name, entry in exact.items()]
    caption = (
        "Next state exact: the share of predicted states that equal the real one word for word, of "
        "all steps and of parts of them."
    )
    rows = _metric_rows(data, f"fidelity/({'|'.join(_TRUST)})(/(cloned|dreamed))?")
    return [*rows, *([Bars(caption, bars)] if bars else [])]


def _split_in_words(name: str) -> str:
    words = title_of(name).partition(", ")[2]
    return words or "all steps"


def _metric_rows(data: ReportData, pattern: str, group_first: bool = False) -> list[Block]:
    rows: list[list[Cell]] = []
    for name, entry in data.metrics.items():
        if re.fullmatch(pattern, name):
            low, high = _number(entry.get("low")), _number(entry.get("high"))
            interval = "" if low == high else f"{low} to {high}"
            group = f"{group_of(name)}: " if group_first else ""
            named = Name(group + title_of(name), name, explanation_of(name))
            rows.append([named, _value(entry), interval, f"{int(entry.get('n') or 0):,}"])
    return [Table(["metric", "value", _interval(data), "n"], rows)] if rows else []


def _all_metrics(data: ReportData) -> list[Block]:
    """A table a group."""
    groups: dict[str, str] = {name.partition("/")[0]: group_of(name) for name in sorted(data.metrics)}
    blocks: list[Block] = []
    for first, title in groups.items():
        blocks += [Heading(title), *_metric_rows(data, rf"{re.escape(first)}(/.*)?")]
    return blocks


def _curriculum(data: ReportData) -> list[Block]:
    rows = _metric_rows(data, r".*/(generated_task_share|zero_variance_groups)", group_first=True)
    if not data.curriculum:
        return rows
    caption = "Proposed variations by what became of them; tasks by difficulty"
    return [Text(told(data.curriculum)), Figure(curriculum_svg(data.curriculum), caption), *rows]


def _stages(stages: Sequence[Mapping[str, Any]]) -> list[Block]:
    rows = []
    for stage in stages:
        how = "reused" if stage.get("reused") else "computed"
        name = str(stage.get("name", ""))
        rows.append([name, _duration(stage.get("seconds")), how, str(stage.get("key", ""))[:12]])
    if not rows:
        return []
    spent = sum(float(stage.get("seconds") or 0) for stage in stages if not stage.get("reused"))
    saved = sum(float(stage.get("seconds") or 0) for stage in stages if stage.get("reused"))
    words = f"Computed in {_duration(spent)}." + (
        f" Reusing earlier results saved {_duration(saved)}." if saved else ""
    )
    return [Text(words), Table(["stage", "wall time", "", "key"], rows)]


def _examples(examples: Sequence[Mapping[str, Any]] | None) -> list[Block]:
    if examples is None:
        return []
    if not examples:
        return [
            Text(
                "No dreamed episode of the last check ended in success, so there was nothing to play in the "
                "real engine."
            )
        ]
    words = (
        "Dreams that ended in success, played again in the real engine action by action. It is loaded with "
        "the world that the dream "
        "described, so what a dream invents is no error; what it concludes wrongly is. Wrongly granted "
        "successes stand first."
    )
    return [Text(words), *(episode_of(example) for example in examples)]


def _next(data: ReportData, run_directory: Path) -> list[Block]:
    files = [
        f"{run_directory / name}   # {words}"
        for name, words in _FILES.items()
        if (run_directory / name).exists()
    ]
    lines = [*files, *data.next_steps]
    return [Code("\n".join(lines))] if lines else []


def _measured(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("n")) and entry.get("value") is not None


def _bar(label: str, entry: Mapping[str, Any]) -> Bar:
    value = float(entry["value"])
    low, high = (value if entry.get(end) is None else float(entry[end]) for end in ("low", "high"))
    return Bar(label, value, low, high, int(entry["n"]), kind=label if label in _ORDER else "")


def _interval(data: ReportData) -> str:
    return f"{data.confidence:.0%} interval"


def _value(entry: Mapping[str, Any]) -> str:
    """The value; a whole one without uncertainty is a count, one with an interval but no observations was not
    measured.
    """
    value, certain = entry.get("value"), entry.get("low") == entry.get("high")
    if value is None or not (_measured(entry) or certain):
        return "not measured"
    return f"{int(value):,}" if certain and float(value).is_integer() else _number(value)


def _number(value: Any) -> str:
    if value is None:
        return ""
    number = float(value)
    return f"{number:,.0f}" if number == int(number) and abs(number) >= 2 else f"{number:.3f}"


def _duration(seconds: Any) -> str:
    total = float(seconds or 0)
    if total < 60:
        return f"{total:.1f} s"
    minutes, rest = divmod(round(total), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(path)
    except OSError as error:
        next_step = f"Free some space or make {path.parent} writable; the run itself is complete."
        raise DataError(
            f"The report {path} cannot be written: {error.strerror or error}.", next_step=next_step
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
