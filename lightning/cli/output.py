"""Output of commands: lines for people, or one JSON document for programs."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbed.output_file import write_output
from lightning.errors import DarkWarning, LightningError, SaturationWarning

if TYPE_CHECKING:
    from lightning.kit.devices.identity import DeviceIdentity

EXIT_OK = 0
EXIT_ERROR = 1


class FileError(LightningError, code="file"):
    """A file that cannot be written."""


def print_document(device: DeviceIdentity | None, document: dict[str, Any], *, is_ok: bool = True) -> None:
    """Print the JSON document of a command. `device` adds its name and whether it is simulated."""
    device_fields = {} if device is None else {"device": device.name, "simulated": device.is_simulated}
    print(json.dumps({"ok": is_ok, **device_fields, **document}))


def describe_error(error: LightningError) -> dict[str, Any]:
    """Return the `error` entry of a document."""
    return {"code": error.code, "message": error.problem, "device": error.device, "hint": error.hint}


@contextlib.contextmanager
def collect_saturation() -> Iterator[list[str]]:
    """Yield an empty list, which gets the saturation warnings of the block when the block ends.

    Warnings of saturation and darkness are also printed to standard error. All other warnings are issued again.
    """
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", SaturationWarning)
        warnings.simplefilter("always", DarkWarning)
        yield messages
    for warning in caught_warnings:
        if issubclass(warning.category, SaturationWarning):
            messages.append(str(warning.message))
        if issubclass(warning.category, SaturationWarning | DarkWarning):
            sys.stderr.write(f"warning: {warning.message}\n")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def warn(messages: Iterable[str]) -> list[str]:
    """Print each warning as a line on standard error; return the warnings for a document."""
    message_list = list(messages)
    for warning in message_list:
        sys.stderr.write(f"warning: {warning}\n")
    return message_list


def mark_simulated(line: str, device: DeviceIdentity) -> str:
    """Return the line, with SIMULATED appended if the device is simulated."""
    return f"{line}  SIMULATED" if device.is_simulated else line


def list_file_names(files: Iterable[Path | None]) -> list[str]:
    """Return the names of the files that are not None."""
    return [str(file) for file in files if file is not None]


def write_csv(
    file: Path, names: Sequence[str], rows: Iterable[Sequence[Any]], device: DeviceIdentity | None = None
) -> None:
    """Write a CSV table: a comment with the device, a line of column names, the rows. Raise `FileError` on failure."""
    try:
        buffer = io.StringIO("" if device is None else f"# {device.label}\n", newline="")
        buffer.seek(0, io.SEEK_END)
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
        write_output(file, buffer.getvalue())
    except OSError as error:
        raise FileError(
            f"{str(file)!r} cannot be written ({error.strerror})", hint="Give another path"
        ) from error
