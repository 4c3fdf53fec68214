"""Compare the numbers of small jobs with recorded ones: proof that a change altered none.

    python tests/same_numbers                      # alfworld, webshop and own; browser too where there is a
    Chromium python tests/same_numbers own                  # one world python tests/same_numbers --record
    # after a change that is meant to alter numbers; say so in the commit

It runs the committed code in fresh clones. Compared are all final metrics except those of speed, to the last
bit, and the SHA-256 of weights and collected data. recorded.json names the processor. Another one rounds
differently: there metrics are compared to a relative 1e-6, and weights not at all. Exit code: 0 all equal, 1
something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from same_numbers.jobs import WORLDS, jobs  # noqa: E402
from small_job import CLOCKS, make_clone, run  # noqa: E402

RECORDED = HERE / "recorded.json"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TOLERANCE = 1e-6
MOST_LINES = 40
WHOLE = ("backbone/model.safetensors", "trajectories/*.parquet")
"""Files of a world's data that are compared."""
Numbers = dict[str, float | int | str | None]


def numbers_of(world: str) -> Numbers:
    """`<world>/<job>/<metric>` -> value (and `.n`), `<world>/<job>/<file>` -> SHA-256. All jobs of the world
    run in one new clone.
    """
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as place:
        clone = make_clone(Path(place) / "clone")
        for job, arguments in jobs(world, clone).items():
            code, output, seconds = run(clone, verb=arguments, small=False, own_server=True)
            if code not in (0, 4):
                sys.exit(
                    f"{world}/{job}: `dreamgym {' '.join(arguments)}` ended with {code}:\n{output[-4000:]}"
                )
            found = (_metrics(clone) if arguments[0] in ("retrain", "study") else {}) | _hashes(clone, world)
            numbers |= {f"{world}/{job}/{name}": value for name, value in found.items()}
            print(f"{world}/{job}: {len(found)} numbers, {seconds:.0f} s", flush=True)
    return numbers


def _metrics(clone: Path) -> Numbers:
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    kept = {name: entry for name, entry in metrics.items() if not any(word in name for word in CLOCKS)}
    return {name: entry["value"] for name, entry in kept.items()} | {
        f"{name}.n": entry["n"] for name, entry in kept.items()
    }


def _hashes(clone: Path, world: str) -> Numbers:
    """Of the weights that the latest run's stages made, and of the world's backbone and trajectories."""
    files: dict[str, Path] = {}
    latest = clone / "runs" / "latest" / "manifest.json"
    for stage in json.loads(latest.read_text())["stages"] if latest.is_file() else []:
        (directory,) = (clone / ".dreamgym" / "stages").glob(f"{stage['name']}-{stage['key'][:12]}")
        files |= {
            f"{stage['name']}/{path.relative_to(directory)}": path
            for path in directory.rglob("*.safetensors")
        }
    data = clone / "data" / world
    files |= {str(path.relative_to(data)): path for pattern in WHOLE for path in data.glob(pattern)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


def differences(
    recorded: Mapping[str, float | int | str | None], now: Numbers, *, same_processor: bool
) -> list[str]:
    """One line for each number that is missing, new or different."""
    lines = []
    for name in sorted({*recorded, *now}):
        before, after = recorded.get(name, "missing"), now.get(name, "missing")
        if before == after or (not same_processor and _near(before, after)):
            continue
        lines.append(f"{name}: recorded {before}, now {after}")
    return lines


def _near(before: float | int | str | None, after: float | int | str | None) -> bool:
    if isinstance(before, str) and isinstance(after, str):
        return "missing" not in (before, after)
    if not isinstance(before, float | int) or not isinstance(after, float | int):
        return False
    return math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2)


def processor() -> str:
    """Model of the processor, as the kernel names it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "worlds", nargs="*", choices=[*WORLDS, []], help="default: all that this machine can run"
    )
    parser.add_argument("--record", action="store_true", help="write recorded.json instead of comparing")
    asked = parser.parse_args()
    has_chromium = any(shutil.which(name) for name in CHROMIUM)
    worlds = asked.worlds or [world for world in WORLDS if world != "browser" or has_chromium]
    recorded = (
        json.loads(RECORDED.read_text()) if RECORDED.is_file() else {"processor": processor(), "numbers": {}}
    )
    began, failed = time.monotonic(), 0
    for world in worlds:
        before = {name: value for name, value in recorded["numbers"].items() if name.startswith(f"{world}/")}
        if not before and not asked.record:
            sys.exit(f"No numbers of {world} are recorded. Type: python tests/same_numbers --record {world}")
        now = numbers_of(world)
        if asked.record:
            others = {name: value for name, value in recorded["numbers"].items() if name not in before}
            recorded = {"processor": processor(), "numbers": dict(sorted((others | now).items()))}
            RECORDED.write_text(json.dumps(recorded, indent=0) + "\n")
            continue
        lines = differences(before, now, same_processor=recorded["processor"] == processor())
        shown = lines[:MOST_LINES] + [f"and {len(lines) - MOST_LINES} more"] * (len(lines) > MOST_LINES)
        print("\n".join(shown) or f"{world}: {len(now)} numbers equal", flush=True)
        failed += len(lines)
    print(
        f"{'recorded' if asked.record else f'{failed} numbers differ' if failed else 'all equal'} "
        f"({time.monotonic() - began:.0f} s)"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
