"""Compare the numbers of small jobs with recorded ones, to show that a change altered none.

    python tests/same_numbers              # alfworld, webshop and own; browser too if Chromium is installed
    python tests/same_numbers own          # one environment
    python tests/same_numbers --record     # after a change that is meant to alter numbers

State in the commit that numbers change. The committed code runs in new clones. All final metrics except those
of speed are compared to the last bit, and so are the SHA-256 of weights and collected data. recorded.json
names the processor. Another processor rounds differently. There metrics are compared to a relative 1e-6, and
weights are not compared. Exit code: 0 all equal, 1 something differs.
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
MAX_LINES = 40
"""Most differences of one environment that are printed."""
COMPARED_FILES = ("backbone/model.safetensors", "trajectories/*.parquet")
"""Files of an environment's data that are compared."""
Numbers = dict[str, float | int | str | None]


def numbers_of(world: str) -> Numbers:
    """Return `<world>/<job>/<metric>` -> value (and `.n`), and `<world>/<job>/<file>` -> SHA-256.

    All jobs of the environment `world` run in one new clone.
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
            has_metrics = arguments[0] in ("retrain", "study")
            job_numbers = (_metrics(clone) if has_metrics else {}) | _hashes(clone, world)
            numbers |= {f"{world}/{job}/{name}": value for name, value in job_numbers.items()}
            print(f"{world}/{job}: {len(job_numbers)} numbers, {seconds:.0f} s", flush=True)
    return numbers


def _metrics(clone: Path) -> Numbers:
    """Return the metrics of the latest run, without those of speed."""
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    kept = {name: entry for name, entry in metrics.items() if not any(word in name for word in CLOCKS)}
    return {name: entry["value"] for name, entry in kept.items()} | {
        f"{name}.n": entry["n"] for name, entry in kept.items()
    }


def _hashes(clone: Path, world: str) -> Numbers:
    """Return file -> hash, of the weights of the latest run's stages and of the environment's data."""
    files: dict[str, Path] = {}
    latest = clone / "runs" / "latest" / "manifest.json"
    for stage in json.loads(latest.read_text())["stages"] if latest.is_file() else []:
        (directory,) = (clone / ".dreamgym" / "stages").glob(f"{stage['name']}-{stage['key'][:12]}")
        files |= {
            f"{stage['name']}/{path.relative_to(directory)}": path
            for path in directory.rglob("*.safetensors")
        }
    data = clone / "data" / world
    files |= {str(path.relative_to(data)): path for pattern in COMPARED_FILES for path in data.glob(pattern)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


def differences(
    recorded: Mapping[str, float | int | str | None], now: Numbers, *, same_processor: bool
) -> list[str]:
    """Return one line for each number that is missing, new or different."""
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
    """Return the model of the processor, as the kernel names it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def main() -> int:
    """Compare or record the numbers of the named environments; return the exit code."""
    options = _parse_options()
    worlds = options.worlds or _available_worlds()
    recorded = {"processor": processor(), "numbers": {}}
    if RECORDED.is_file():
        recorded = json.loads(RECORDED.read_text())
    start = time.monotonic()
    difference_count = 0
    for world in worlds:
        before = {name: value for name, value in recorded["numbers"].items() if name.startswith(f"{world}/")}
        if not before and not options.record:
            sys.exit(f"No numbers of {world} are recorded. Type: python tests/same_numbers --record {world}")
        now = numbers_of(world)
        if options.record:
            others = {name: value for name, value in recorded["numbers"].items() if name not in before}
            recorded = {"processor": processor(), "numbers": dict(sorted((others | now).items()))}
            RECORDED.write_text(json.dumps(recorded, indent=0) + "\n")
            continue
        lines = differences(before, now, same_processor=recorded["processor"] == processor())
        listed = lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            listed.append(f"and {len(lines) - MAX_LINES} more")
        print("\n".join(listed) or f"{world}: {len(now)} numbers equal", flush=True)
        difference_count += len(lines)
    verdict = f"{difference_count} numbers differ" if difference_count else "all equal"
    print(f"{'recorded' if options.record else verdict} ({time.monotonic() - start:.0f} s)")
    return int(difference_count > 0)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "worlds", nargs="*", choices=[*WORLDS, []], help="default: all that this machine can run"
    )
    parser.add_argument("--record", action="store_true", help="write recorded.json instead of comparing")
    return parser.parse_args()


def _available_worlds() -> list[str]:
    """Return the environments that this machine can run; the browser needs Chromium."""
    has_chromium = any(shutil.which(name) for name in CHROMIUM)
    return [world for world in WORLDS if world != "browser" or has_chromium]


if __name__ == "__main__":
    sys.exit(main())
