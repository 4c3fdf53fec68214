"""Write the tree of folders and modules into docs/reference/architecture.md, from the docstrings of modules.

    python docs/scripts/make_tree.py           # write the tree between its marks
    python docs/scripts/make_tree.py --check   # exit code 1 if the document differs

The line of a module is the first sentence of its docstring; that of a folder is its `__init__.py`'s.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from components.evaluation.report.document_tables import insert_table, table_markers  # noqa: E402

DOCUMENT = Path("docs/reference/architecture.md")
NAME = "tree"


def first_sentence(path: Path) -> str:
    """Return the first sentence of the docstring of `path`, on one line and escaped for a table."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence, _, _ = paragraph.partition(". ")
    return sentence.rstrip(".:").replace("|", "\\|")


def modules_below(folder: Path) -> list[Path]:
    """Return the modules of `folder`, then those of each sub-folder after the sub-folder itself."""
    own = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    inner = sorted(path.parent for path in folder.glob("*/__init__.py"))
    return [*own, *(module for sub in inner for module in [sub, *modules_below(sub)])]


def rooms(root: Path) -> list[Path]:
    """Return the folders with a heading: `flows`, and each package directly below `components`."""
    return [root / "flows", *sorted(path.parent for path in (root / "components").glob("*/__init__.py"))]


def tree(root: Path = ROOT) -> str:
    """Return one heading and one table per room: path, and what it is for."""
    parts = [
        _table(
            "### `components/`", sorted((root / "components").glob("*.py"), key=lambda path: path.name), root
        )
    ]
    for room in rooms(root):
        title = f"### `{room.relative_to(root).as_posix()}/`"
        parts.append(_table(title, modules_below(room), root, first_sentence(room / "__init__.py")))
    return "\n\n".join(parts)


def _table(title: str, paths: Sequence[Path], root: Path, words: str = "") -> str:
    rows = [_row(path, root) for path in paths if path.name != "__init__.py"]
    head = [title, "", *([f"{words}.", ""] if words else []), "| path | what it is for |", "| --- | --- |"]
    return "\n".join([*head, *rows])


def _row(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        return f"| **`{name}/`** | **{first_sentence(path / '__init__.py') or 'see its modules'}** |"
    return f"| `{name}` | {first_sentence(path)} |"


def is_current(root: Path = ROOT) -> bool:
    """Return True if the document has the tree of the present docstrings."""
    begin, end = table_markers(NAME)
    return f"{begin}\n{tree(root)}\n{end}" in (root / DOCUMENT).read_text(encoding="utf-8")


def main() -> int:
    """Write the tree, or compare it; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="Write nothing; exit code 1 if the tree differs."
    )
    if not parser.parse_args().check:
        insert_table(ROOT / DOCUMENT, tree(), NAME)
    elif not is_current():
        print(f"{DOCUMENT} differs. Type: python docs/scripts/make_tree.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
