"""Names and versions of the packages that this process imports from."""

from __future__ import annotations

import sysconfig
from importlib import metadata
from pathlib import Path


def installed_packages() -> dict[str, str]:
    """Name -> version of every installed distribution, sorted by name.

    Folders inside another package do not count: a process that imports setuptools has its private copies of
    other packages on the path. Of two distributions of one name the first on the path counts.
    """
    installation = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    versions: dict[str, str] = {}
    for dist in metadata.distributions():
        folder = Path(str(dist.locate_file(""))).resolve()
        if dist.metadata["Name"] and not any(place in folder.parents for place in installation):
            versions.setdefault(dist.metadata["Name"], dist.version)
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))
