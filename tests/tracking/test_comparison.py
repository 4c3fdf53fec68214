"""What differs between two runs, in a real git repository: each section alone, and nothing where nothing
does.
"""

from __future__ import annotations

import copy

import pytest
from test_manifest import git, make_manifest, repository  # noqa: F401

from components.tracking.run_differences import differences


@pytest.fixture
def pair(repository):  # noqa: F811
    (repository / "components" / "experience").mkdir(parents=True)
    (repository / "components" / "experience" / "prompts.py").write_text("FORM = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "prompts")
    return repository, make_manifest(repository), make_manifest(repository)


def test_equal_runs_differ_in_nothing(pair):
    root, first, second = pair
    assert differences(first, second, root) == {}


def test_each_difference_is_named_in_its_section(pair):
    root, first, second = pair
    (root / "components" / "experience" / "prompts.py").write_text("FORM = 2\n")
    (root / "README.md").write_text("no code\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "another form")
    second = copy.deepcopy(second)
    second.environment.git = make_manifest(root).environment.git
    second.config = {"seed": 3, "a": {"b": 1, "c": True}, "tracking": {"uri": "x"}}
    first.config = {"seed": 0, "a": {"b": 1, "c": False}, "d": [1]}
    second.seeds, second.data.dvc_in = {"python": 3}, "abc.dir"
    second.environment.packages |= {"torch": "0.1", "new": "1"}
    second.environment.hardware.threads = 8
    found = differences(first, second, root)
    assert list(found) == ["code", "prompts", "data", "config", "seeds", "packages", "machine"]
    told = {section: [(d.name, d.first, d.second) for d in entries] for section, entries in found.items()}
    assert told["prompts"][0][0] == "components/experience/prompts.py"
    assert told["code"][1] == ("files changed between the commits", "", "components/experience/prompts.py")
    assert told["config"] == [("a.c", "false", "true"), ("d", "[1]", "-")]
    assert told["data"] == [("dvc_in", "", "abc.dir")] and told["seeds"] == [("python", "0", "3")]
    assert ("new", "-", "1") in told["packages"] and told["machine"] == [("threads", "2", "8")]


def test_changes_beside_the_commit_are_code(pair):
    root, first, second = pair
    (root / "code.py").write_text("x = 3\n")
    second.environment.git = make_manifest(root).environment.git
    (entry,) = differences(first, second, root)["code"]
    assert (entry.name, entry.first) == ("beside the commit", "clean") and len(entry.second) == 12


def test_a_new_version_of_the_data_is_no_change_of_the_code(pair):
    root, first, second = pair
    (root / "data.dvc").write_text("outs: []\n")
    second.environment.git = make_manifest(root).environment.git
    assert second.environment.git.dirty and "code" not in differences(first, second, root)


def test_a_commit_of_another_clone_is_no_error(pair):
    root, first, second = pair
    second.environment.git.commit = "f" * 40
    assert [d.name for d in differences(first, second, root)["code"]] == ["commit"]
