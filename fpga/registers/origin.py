"""Text and parameters of a datapath in the folder that is built of it: what its files can be held against.

`build.json` names the text and the values of its parameters. Imported files lie where the imports look for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fpga.count_action.load import Checked, load

ORIGIN = "build.json"
"""The file that says of which text a folder was built."""


def origin_files(checked: Checked, text: Path, parameters: Mapping[str, int]) -> dict[str, str]:
    """Return the text, all that it imports, and `build.json`. Raises ValueError for an absolute import, OSError."""
    outside = [str(said) for said, _ in checked.imported if said.is_absolute()]
    if outside:
        raise ValueError(
            f"{text.name} imports {outside[0]!r} by its absolute path, which cannot lie in the built folder."
            " Import it by a relative one."
        )
    # Imports that climb out of the folder of the text need as many folders above it.
    climbs = max((_climbs(said) for said, _ in checked.imported), default=0)
    home = PurePosixPath(*(["text", *["_"] * climbs] if climbs else []))
    files = {str(_normal(home / text.name)): text}
    files |= {str(_normal(home / said)): found for said, found in checked.imported}
    document = {
        "text": str(home / text.name),
        "parameters": dict(parameters),
        "datapath": checked.datapath.name,
        "hash": f"{checked.datapath.digest:08x}",
    }
    read = {name: path.read_bytes().decode("utf-8") for name, path in files.items()}
    return {**read, ORIGIN: json.dumps(document, indent=1) + "\n"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The text of a built folder, read again: the datapath, and the files that say what it is."""

    checked: Checked
    files: tuple[str, ...]


def read_origin(folder: Path) -> Origin:
    """Return the datapath that the text in a built folder describes.

    Raises ValueError when the folder does not say of which text it was built, CountActionError when the text is
    wrong.
    """
    path = folder / ORIGIN
    if not path.is_file():
        raise ValueError(
            f"{folder} has no {ORIGIN}: this version of `countaction build` did not write it. Build it "
            "again: countaction build FILE -o DIR."
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        text, given = folder / str(document["text"]), document["parameters"]
        parameters = {str(name): int(value) for name, value in given.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Build the folder again.") from error
    checked = load(text, parameters)
    inside = [each for _, each in checked.imported if each.resolve().is_relative_to(folder.resolve())]
    named = (each.resolve().relative_to(folder.resolve()).as_posix() for each in (text, *inside))
    return Origin(checked, (ORIGIN, *dict.fromkeys(named)))


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def _climbs(path: PurePosixPath) -> int:
    return sum(part == ".." for part in _normal(path).parts)
