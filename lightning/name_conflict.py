"""Name conflict with PyTorch Lightning, whose package is also called `lightning`.

The two packages cannot share an environment. Both install into a folder `lightning`, and the later installation
overwrites the earlier `__init__.py`. Our modules check for the other package when they are imported
(`check_no_conflict`). Uninstalling the other package also removes the `__init__.py`. Python then imports
`lightning.py`, which the wheel puts beside the folder (`tools/wheel.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOREIGN_FILES = ("pytorch/__init__.py", "fabric/__init__.py", "__about__.py", "__version__.py")
"""Files of PyTorch Lightning that our package lacks."""
HINT = (
    "Install lightbed in a separate environment. Or, if PyTorch Lightning is not needed under this name: "
    "pip uninstall -y lightning; pip install pytorch-lightning (imported as pytorch_lightning, which does not"
    " collide); then reinstall lightbed, because uninstalling removes the command `lightning`"
)


def check_no_conflict(file: str) -> None:
    """Raise `ImportError` with `HINT` if PyTorch Lightning is installed. `file` is the path of one of our modules."""
    conflict = find_foreign_package([str(Path(file).parents[1]), *sys.path])
    if conflict:
        raise ImportError(
            f"another package named lightning (PyTorch Lightning) is installed here: {conflict}. {HINT}",
            name="lightning",
        )


def find_foreign_package(folders: Iterable[str]) -> str:
    """Return evidence of another package `lightning` in these folders of the import path, or ""."""
    for folder in map(Path, dict.fromkeys(folders)):
        with suppress(OSError):  # nothing can be imported from an unreadable folder
            evidence = _find_foreign_package_in(folder)
            if evidence:
                return evidence
    return ""


def _find_foreign_package_in(folder: Path) -> str:
    for record in sorted((*folder.glob("lightning-*.dist-info"), *folder.glob("lightning-*.egg-info"))):
        return f"{record} belongs to it"
    package = folder / "lightning"
    for name in FOREIGN_FILES:
        if (package / name).exists():
            return f"{package / name} is not part of lightbed"
    if (package / "__init__.py").exists() and not (package / "name_conflict.py").exists():
        return f"{package} is another package"
    return ""


def find_missing_init(file: str) -> str:
    """Return the `__init__.py` beside `file` if it is missing because PyTorch Lightning was uninstalled, or ""."""
    missing_file = Path(file).with_name("__init__.py")
    return "" if missing_file.exists() else str(missing_file)
