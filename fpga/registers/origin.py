"""Copy of a datapath's source text and parameters in its built folder, with which the other files are verified.

`build.json` holds the name of the text and the values of its parameters. Imported files keep their paths relative to
the text, so that its imports find them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fpga.count_action.load import CheckedDatapath, load

ORIGIN = "build.json"
"""Name of the file that records the source text and parameters of a built folder."""


def collect_origin_files(
    checked_datapath: CheckedDatapath, text_path: Path, parameters: Mapping[str, int]
) -> dict[str, str]:
    """Return the source text, its imports and `build.json`, by path.

    Raise ValueError for an absolute import, and OSError if a file cannot be read.
    """
    absolute_paths = [
        str(import_path) for import_path, _ in checked_datapath.imported if import_path.is_absolute()
    ]
    if absolute_paths:
        raise ValueError(
            f"{text_path.name} imports {absolute_paths[0]!r} by an absolute path; the built folder can hold only"
            " files that"
            " are imported by relative paths. Import it by a relative path."
        )
    # Imports with `..` leave the folder of the source text, so it is placed that many folders deep below `text/`.
    parent_count = max(
        (_count_parents(import_path) for import_path, _ in checked_datapath.imported), default=0
    )
    text_folder = PurePosixPath(*(["text", *["_"] * parent_count] if parent_count else []))
    paths_by_name = {str(_normalise(text_folder / text_path.name)): text_path}
    paths_by_name |= {
        str(_normalise(text_folder / import_path)): file for import_path, file in checked_datapath.imported
    }
    document = {
        "text": str(text_folder / text_path.name),
        "parameters": dict(parameters),
        "datapath": checked_datapath.datapath.name,
        "hash": f"{checked_datapath.datapath.digest:08x}",
    }
    texts = {name: path.read_bytes().decode("utf-8") for name, path in paths_by_name.items()}
    return {**texts, ORIGIN: json.dumps(document, indent=1) + "\n"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The datapath of a built folder, and the names of its source files."""

    checked_datapath: CheckedDatapath
    file_names: tuple[str, ...]


def read_origin(folder: Path) -> Origin:
    """Return the datapath that the source text in a built folder describes.

    Raise ValueError if `build.json` is missing or not valid, and CountActionError if the text has errors.
    """
    path = folder / ORIGIN
    if not path.is_file():
        raise ValueError(
            f"{folder} has no {ORIGIN}: the folder was not written by this version of `countaction build`. Build it "
            "again: countaction build FILE -o DIR."
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        text_path, values = folder / str(document["text"]), document["parameters"]
        parameters = {str(name): int(value) for name, value in values.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Build the folder again.") from error
    checked_datapath = load(text_path, parameters)
    local_imports = [
        import_file
        for _, import_file in checked_datapath.imported
        if import_file.resolve().is_relative_to(folder.resolve())
    ]
    names = (
        source_file.resolve().relative_to(folder.resolve()).as_posix()
        for source_file in (text_path, *local_imports)
    )
    return Origin(checked_datapath, (ORIGIN, *dict.fromkeys(names)))


def _normalise(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def _count_parents(path: PurePosixPath) -> int:
    return sum(part == ".." for part in _normalise(path).parts)
