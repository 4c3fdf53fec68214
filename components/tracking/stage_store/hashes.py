"""Content hashes (sha256, hex) of files, directories and source code.

Equal content has an equal hash, whatever its path.
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
_SKIPPED_FOLDERS = {"__pycache__"}
_OWN_PACKAGES = ("components", "flows")


def file_hash(path: Path) -> str:
    """Hash of the bytes of one file.

    Raises:
        DataError: the file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}.",
            "Expected a file.",
            "Restore it, or run the stage again that makes it.",
        ) from None
    return digest.hexdigest()


def tree_hash(path: Path, leave_out: Sequence[str] = ()) -> str:
    """Hash of a file, or of the files of a directory in the order of their relative paths.

    File names count; times and modes do not.

    Args:
        leave_out: paths of files within the directory that do not count.

    Raises:
        DataError: `path` or a file below it is missing or cannot be read.
    """
    if not path.is_dir():
        return file_hash(path)
    names = {file.relative_to(path).as_posix(): file for file in _files(path)}
    return _hash_pairs((name, file_hash(file)) for name, file in names.items() if name not in leave_out)


def text_hash(text: str) -> str:
    """Hash of the UTF-8 bytes of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def code_hash(names: Sequence[str]) -> str:
    """Hash of the code of modules and packages, such as `["components.language"]`.

    All files below a package count. Docstrings, comments and layout of Python files do not. The packages are
    found as an import would find them, but a named module itself is not run.

    Raises:
        TrackingError: a name is not a module.
    """
    pairs = []
    for name in sorted(set(names)):
        for folder, file in _sources(name):
            pairs.append((f"{name}:{file.relative_to(folder).as_posix()}", _source_hash(file)))
    return _hash_pairs(pairs)


def module_hash(name: str) -> str:
    """Hash of the code of one module.

    Of a package of this project only its `__init__.py` counts. Of another package, such as a user's own
    environment, all files count.

    Raises:
        TrackingError: there is no such module.
    """
    if name.split(".")[0] not in _OWN_PACKAGES:
        return code_hash([name])
    return _hash_pairs((file.name, _source_hash(file)) for file in _module_files(name))


def _source_hash(file: Path) -> str:
    """Hash of a Python file without docstrings, comments and layout, or of another file's bytes."""
    if file.suffix != ".py":
        return file_hash(file)
    try:
        return text_hash(_code_text(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, SyntaxError):
        return file_hash(file)


@functools.lru_cache(maxsize=2048)
def _code_text(source: str) -> str:
    """The syntax tree of `source` as text, without string expressions such as docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(
                    node,
                    field,
                    [statement for statement in statements if not _is_string_expression(statement)],
                )
    return ast.dump(tree)


def _is_string_expression(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def with_imports(names: Sequence[str], leave_out: Sequence[str] = ()) -> list[str]:
    """`names` and all modules of this project that they import, directly or indirectly, sorted.

    Imports inside functions count.

    Args:
        leave_out: modules and packages that are left out, with what they import.

    Raises:
        TrackingError: a name is not a module.
    """
    visited: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        is_left_out = any(name == other or name.startswith(f"{other}.") for other in leave_out)
        if name not in visited and not is_left_out:
            visited.add(name)
            pending += _imported_modules(name)
    return sorted(visited)


def _imported_modules(name: str) -> list[str]:
    """Modules of this project that a module imports."""
    modules: list[str] = []
    for file in _module_files(name):
        for module, members in (
            _import_statements(file.read_text(encoding="utf-8")) if file.suffix == ".py" else ()
        ):
            modules += [member for member in members if _is_module(member)] or [module]
    return [module for module in modules if module != name]


@functools.lru_cache(maxsize=1024)
def _import_statements(source: str) -> list[tuple[str, list[str]]]:
    """(module, names that may be modules in it) of each import of this project's packages in `source`.

    Cached, because every stage asks for the same sources.
    """
    imports: list[tuple[str, list[str]]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imports += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.append((node.module, [f"{node.module}.{alias.name}" for alias in node.names]))
    return [(module, members) for module, members in imports if module.split(".")[0] in _OWN_PACKAGES]


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
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    selected = (file for file in files if not skip.intersection(file.relative_to(folder).parts))
    return sorted(selected, key=lambda file: file.relative_to(folder).as_posix())


def _module_files(name: str) -> list[Path]:
    """The file of a module of this project, or `__init__.py` of its package; all files of another package."""
    sources = list(_sources(name))
    if name.split(".")[0] not in _OWN_PACKAGES:
        return [file for _, file in sources]
    return [
        file
        for folder, file in sources
        if file.parent == folder and file.stem in ("__init__", name.split(".")[-1])
    ]


def _sources(name: str) -> Iterator[tuple[Path, Path]]:
    """(folder, file) of each source file of a module or package."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise TrackingError(
            f"There is no module {name!r} to hash.",
            "Expected names such as components.language.",
            "Correct its name.",
        )
    if spec.submodule_search_locations:
        for folder in sorted(spec.submodule_search_locations):
            source_files = (
                file
                for file in _files(Path(folder), _SKIPPED_FOLDERS)
                if not file.name.startswith(".") and file.suffix != ".pyc"
            )
            yield from ((Path(folder), file) for file in source_files)
    elif spec.origin:
        yield Path(spec.origin).parent, Path(spec.origin)
