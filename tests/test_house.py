"""The house rules that no linter knows, kept by a test: names, sizes, docstrings, layers, and what no file
may name.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for folder in ("flows", "components") for path in (ROOT / folder).rglob("*.py"))
MOST_LINES = 330
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "misc", "common", "manager", "managers"}
REGISTRY = re.compile(
    r"(?i)index[-_]url|python[h]osted\.org|pyp[i]\.(?:python\.)?org|download\.py[t]orch\.org|\bfind[-_]links\b"
)
MACHINE_PATH = re.compile(r"(?<![\w.{$])/(?:home|root|Users|work|mnt)/\w")


def _id(path):
    return path.relative_to(ROOT).as_posix()


def _files():
    """Text files of the repository as git sees them, new ones included."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path != Path(__file__) and not name.startswith("seed/"):
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_the_mlflow_folder_never_shadows_the_package():
    assert not (ROOT / "mlflow" / "__init__.py").exists()


@pytest.mark.parametrize("rule", [REGISTRY, MACHINE_PATH], ids=["registry host", "machine path"])
def test_no_file_names_a(rule):
    found = [f"{name}: {match[0]}" for name, text in _files() for match in rule.finditer(text)]
    assert not found


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_module(path):
    text = path.read_text(encoding="utf-8")
    assert path.stem not in FORBIDDEN_NAMES and not FORBIDDEN_NAMES.intersection(path.stem.split("_")), (
        "say what the module is"
    )
    assert len(text.splitlines()) <= MOST_LINES, "split it by idea"
    tree = ast.parse(text)
    assert ast.get_docstring(tree) or not tree.body, "a module starts with what it is"


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=_id)
def test_no_heading_stands_twice_in_a_page(path):
    """A page whose part was pasted twice has a stale copy."""
    headings = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert [heading for heading in headings if headings.count(heading) > 1] == []


def test_only_the_makers_of_formats_ask_which_one_a_model_has():
    """A stage gets a text format and uses it. Pretraining and its exercises know the compact one alone."""
    asking = re.compile(r"isinstance\(\w+, (?:Chat|Compact)Vocabulary\)|\.format [!=]= |\bformat == ")
    allowed = {
        "components/experience/formats/choose.py",
        "components/policy/formats/choose.py",
        "components/language/backbone.py",
        "components/language/exercises/rehearsal.py",
        "flows/jobs/pretraining/text_examples.py",
    }
    found = {_id(path) for path in MODULES if asking.search(path.read_text(encoding="utf-8"))}
    assert {name for name in found if not name.startswith("components/language/vocabulary/")} == allowed


def test_import_contracts():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "0 broken" in done.stdout


def test_ci_entry_is_executable():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
