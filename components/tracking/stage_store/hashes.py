"""Content hashes (sha256, hex) of files, directories and source code: equal content has an equal hash,
wherever it lies.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from components.errors import DataError, TrackingError

_CHUNK_BYTES = 1 << 20
_NOT_SOURCE = {"__pycache__"}
_OWN = ("components", "flows")


def file_hash(path: Path) -> str:
    """Hash of the bytes of one file. Raises DataError if it is missing or cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}.",
            "Expected a file.",
            "Make it again or restore it.",
        ) from None
    return digest.hexdigest()


def tree_hash(path: Path) -> str:
    """Hash of a file, or of a directory: over its files in order of their relative paths; names count, times
    and modes do not.

    Raises:
        DataError: `path` or a file below it is missing or cannot be read.
    """
    if not path.is_dir():
        return file_hash(path)
    return _hash_pairs((file.relative_to(path).as_posix(), file_hash(file)) for file in _files(path))


def text_hash(text: str) -> str:
    """Hash of the UTF-8 bytes of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def code_hash(names: Sequence[str]) -> str:
    """Hash of the code of modules and packages (all files below a package), such as
    `["components.language"]`.

    Docstrings, comments and layout of Python files do not count. The packages are found as an import would
    find them, but a named module itself is not run.

    Raises:
        TrackingError: there is no module of a name.
    """
    pairs = []
    for name in sorted(set(names)):
        for folder, file in _sources(name):
            pairs.append((f"{name}:{file.relative_to(folder).as_posix()}", _source_hash(file)))
    return _hash_pairs(pairs)


def module_hash(name: str) -> str:
    """Hash of the code of one module: of a package of this project its `__init__.py` alone.

    A package of others, such as a user's own world, counts whole.

    Raises:
        TrackingError: there is no such module.
    """
    if name.split(".")[0] not in _OWN:
        return code_hash([name])
    return _hash_pairs((file.name, _source_hash(file)) for file in _module_files(name))


def _source_hash(file: Path) -> str:
    """Hash of a Python file without docstrings, comments and layout; of other files, of their bytes."""
    if file.suffix != ".py":
        return file_hash(file)
    try:
        return text_hash(_code_text(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, SyntaxError):
        return file_hash(file)


@functools.lru_cache(maxsize=2048)
def _code_text(source: str) -> str:
    """The syntax tree of a source text as text, without string expressions, which include docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [one for one in statements if not _is_string_expression(one)])
    return ast.dump(tree)


def _is_string_expression(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def with_imports(names: Sequence[str], leave_out: Sequence[str] = ()) -> list[str]:
    """`names` and all modules of this project that they import, directly or not, also inside functions;
    sorted.

    `leave_out` names modules and packages that are not followed.

    Raises:
        TrackingError: there is no module of a name.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and not any(
            name == other or name.startswith(f"{other}.") for other in leave_out
        ):
            found.add(name)
            waiting += _imported(name)
    return sorted(found)


def _imported(name: str) -> list[str]:
    """Modules of the project's own packages that a module names in its imports."""
    modules: list[str] = []
    for file in _module_files(name):
        for module, members in (
            _import_statements(file.read_text(encoding="utf-8")) if file.suffix == ".py" else ()
        ):
            modules += [member for member in members if _is_module(member)] or [module]
    return [module for module in modules if module != name]


@functools.lru_cache(maxsize=1024)
def _import_statements(source: str) -> list[tuple[str, list[str]]]:
    """What a source text imports of the project's own packages: (module, what may be modules in it). Parsed
    once, as each stage asks.
    """
    found: list[tuple[str, list[str]]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.module, [f"{node.module}.{alias.name}" for alias in node.names]))
    return [(module, members) for module, members in found if module.split(".")[0] in _OWN]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _hash_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, content in pairs:
        digest.update(f"{len(os.fsencode(name))}:".encode() + os.fsencode(name) + content.encode())
    return digest.hexdigest()


def _files(folder: Path, skip: frozenset[str] | set[str] = frozenset()) -> list[Path]:
    found = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    kept = (file for file in found if not skip.intersection(file.relative_to(folder).parts))
    return sorted(kept, key=lambda file: file.relative_to(folder).as_posix())


def _module_files(name: str) -> list[Path]:
    """The file of a module; of a package its `__init__.py`. Packages of others: all their files."""
    sources = list(_sources(name))
    if name.split(".")[0] not in _OWN:
        return [file for _, file in sources]
    return [
        file
        for folder, file in sources
        if file.parent == folder and file.stem in ("__init__", name.split(".")[-1])
    ]


def _sources(name: str) -> Iterator[tuple[Path, Path]]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise TrackingError(
            f"There is no module {name!r} to hash.",
            "Expected names such as components.language.",
            "Mend its name.",
        )
    if spec.submodule_search_locations:
        for folder in sorted(spec.submodule_search_locations):
            visible = (
                file
                for file in _files(Path(folder), _NOT_SOURCE)
                if not file.name.startswith(".") and file.suffix != ".pyc"
            )
            yield from ((Path(folder), file) for file in visible)
    elif spec.origin:
        yield Path(spec.origin).parent, Path(spec.origin)
