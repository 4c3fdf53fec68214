"""Packages that a process imports from, where the path has several of one name."""

import subprocess
import sys

from components.installed_packages import installed_packages


def test_of_two_copies_of_a_distribution_the_one_that_is_imported_counts(tmp_path, monkeypatch):
    for place, version in (("first", "2.0"), ("vendored", "1.0")):
        info = tmp_path / place / f"twice-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: twice\nVersion: {version}\n")
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / place)])
    assert installed_packages()["twice"] == "2.0"


def test_the_private_copies_of_setuptools_do_not_count_as_installed():
    """Importing setuptools puts them on the path: a run and its repetition differed by that alone."""
    program = (
        "from components.installed_packages import installed_packages as packages\n"
        "before = packages()\n"
        "import setuptools, sys\n"
        "assert any(entry.endswith('_vendor') for entry in sys.path), sys.path\n"
        "assert packages() == before, sorted(packages().items() - before.items())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
