"""Files: reading them, and the modules that a file can use because it imports others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fpga.count_action.diagnostics import CountActionError, Refused, Report, quoted
from fpga.count_action.language.parse import parse_tree
from fpga.count_action.language.syntax import FileText, Import, ModuleText
from fpga.count_action.model import Location

MAX_BYTES = 1 << 20
"""A larger file is not read."""
_MAX_IMPORTS = 200
_HERE = PurePosixPath()
LIBRARY = Path(__file__).resolve().parents[2] / "library"
"""Folder in which an imported file is looked for when it is not next to the one that imports it."""


def read_source(path: Path, at: Location, wanted: str) -> str:
    """Return the text of a file. Bytes that are not UTF-8 become U+FFFD, which the parser refuses with its place.

    Raises `Refused` at `at` when the file cannot be read.
    """
    shown = quoted(wanted)
    try:
        if path.is_dir():
            raise Refused(at, f"{shown} is a folder", "Name a file in it.")
        if not path.is_file():
            raise Refused(
                at, f"there is no file {shown}", "Check the name, and the folder it is looked for in."
            )
        if path.stat().st_size > MAX_BYTES:
            size = path.stat().st_size
            raise Refused(
                at,
                f"{shown} has {size} bytes; at most {MAX_BYTES} are read",
                "Split it and import the parts.",
            )
        return path.read_bytes().decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise Refused(
            at, f"{shown} cannot be read: {error}", "Check the name and the rights of the file."
        ) from error


@dataclass
class Imports:
    """Modules of imported files, those that these import included."""

    report: Report
    modules: dict[str, ModuleText] = field(default_factory=dict)
    files: dict[PurePosixPath, Path] = field(default_factory=dict)
    """The imported files by their paths as the imports say them, seen from the first file."""
    _read: set[Path] = field(default_factory=set)

    def follow(
        self, tree: FileText, path: Path, chain: tuple[Path, ...] = (), place: PurePosixPath = _HERE
    ) -> None:
        """Add the modules of all that `tree`, the text of `path`, imports; it lies at `place`."""
        chain = (*chain, path.resolve())
        for wanted in tree.imports():
            with self.report.part():
                self._follow_one(wanted, path.parent, chain, place)

    def _follow_one(
        self, wanted: Import, folder: Path, chain: tuple[Path, ...], place: PurePosixPath
    ) -> None:
        found = _find(wanted, folder)
        said = place / wanted.path
        self.files[said] = found
        real = found.resolve()
        if real in chain:
            circle = " -> ".join(each.name for each in (*chain[chain.index(real) :], real))
            message = f"these files import each other in a circle: {circle}"
            raise Refused(wanted.at, message, "Move what both need into a third file.")
        if real in self._read:
            return
        if len(self._read) >= _MAX_IMPORTS or len(chain) > 40:
            raise Refused(
                wanted.at, f"more than {_MAX_IMPORTS} files, or 40 within each other", "Join some of them."
            )
        self._read.add(real)
        try:
            tree = parse_tree(read_source(found, wanted.at, wanted.path), str(found))
        except CountActionError as error:
            for each in error.errors:
                self.report.error(each)
            return
        self._add(tree, wanted)
        self.follow(tree, found, chain, said.parent)

    def _add(self, tree: FileText, wanted: Import) -> None:
        for module in tree.modules():
            known = self.modules.setdefault(module.name, module)
            if known is not module:
                message = f"module {quoted(module.name)} is defined at {known.at} and at {module.at}"
                raise Refused(wanted.at, message, "Rename one of them.")


def _find(wanted: Import, folder: Path) -> Path:
    if not wanted.path:
        raise Refused(wanted.at, "no file is named", 'Write import "FILE.ca";')
    try:
        neighbour = folder / wanted.path
        return (
            neighbour
            if neighbour.is_file() or not (LIBRARY / wanted.path).is_file()
            else LIBRARY / wanted.path
        )
    except (OSError, ValueError) as error:
        raise Refused(
            wanted.at, f"{quoted(wanted.path)} is not a valid file name: {error}", "Check it."
        ) from error
