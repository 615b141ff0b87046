"""How commands say what they found: lines for people, one document for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lightning.devices.identity import DeviceIdentity
from lightning.errors import LightningError

DONE = 0
ERROR = 1


class FileError(LightningError):
    """A file that cannot be written."""

    code = "file"


def print_document(device: DeviceIdentity | None, document: dict[str, Any], *, ok: bool = True) -> None:
    """The one document of a command."""
    whose = {} if device is None else {"device": device.name, "simulated": device.simulated}
    print(json.dumps({"ok": ok, **whose, **document}))


def marked(line: str, device: DeviceIdentity) -> str:
    """The line, which says SIMULATED when its device is."""
    return f"{line}  SIMULATED" if device.simulated else line


def written(files: Iterable[Path | None]) -> list[str]:
    """Names of the files that were asked for."""
    return [str(each) for each in files if each is not None]


def write_csv(
    file: Path, names: Sequence[str], rows: Iterable[Sequence[Any]], device: DeviceIdentity
) -> None:
    """A table with a line of names; the first line says whose it is. Raises `FileError`."""
    try:
        with file.open("w", encoding="utf-8", newline="") as opened:
            opened.write(f"# {device.label}\n")
            table = csv.writer(opened, lineterminator="\n")
            table.writerow(names)
            table.writerows(rows)
    except OSError as error:
        raise FileError(
            f"{str(file)!r} cannot be written ({error.strerror})", cure="Give another path"
        ) from error
