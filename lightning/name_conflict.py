"""A foreign package of the name `lightning`: PyTorch Lightning, which cannot share an environment with this one.

Both install into a folder `lightning`, and whichever came last has overwritten `__init__.py` of the other. Our modules
look for theirs when they are imported (`check_installed`). When theirs is uninstalled, its `__init__.py`, which was
ours, goes with it: then Python takes `lightning.py`, which the wheel puts beside the folder (`tools/wheel.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

THEIRS = ("pytorch/__init__.py", "fabric/__init__.py", "__about__.py", "__version__.py")
"""Files of PyTorch Lightning that ours does not have."""
HINT = (
    "Give lightbed an environment of its own; or, if their package is not needed under this name: "
    "pip uninstall -y lightning; pip install pytorch-lightning (imported as pytorch_lightning, which does not"
    " collide), and lightbed again: the command `lightning` goes with theirs"
)


def check_installed(file: str) -> None:
    """Raise `ImportError` with the hint when a foreign `lightning` is installed; `file` is one of our modules."""
    found = find_foreign([str(Path(file).parents[1]), *sys.path])
    if found:
        raise ImportError(
            f"another package named lightning (PyTorch Lightning) is installed here: {found}. {HINT}",
            name="lightning",
        )


def find_foreign(folders: Iterable[str]) -> str:
    """Return where a foreign `lightning` shows in these folders of the path; empty where it does not."""
    for folder in map(Path, dict.fromkeys(folders)):
        with suppress(OSError):  # a folder that may not be read holds nothing that is imported
            found = _foreign_in(folder)
            if found:
                return found
    return ""


def _foreign_in(folder: Path) -> str:
    for record in sorted((*folder.glob("lightning-*.dist-info"), *folder.glob("lightning-*.egg-info"))):
        return f"{record} tells of it"
    package = folder / "lightning"
    for name in THEIRS:
        if (package / name).exists():
            return f"{package / name} is not ours"
    if (package / "__init__.py").exists() and not (package / "name_conflict.py").exists():
        return f"{package} is another package"
    return ""


def find_loss(file: str) -> str:
    """Return the file that uninstalling theirs took along; empty where ours is as it was installed."""
    lost = Path(file).with_name("__init__.py")
    return "" if lost.exists() else str(lost)
