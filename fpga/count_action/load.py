"""From a file or a text to a checked datapath: `load` and `parse_text`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fpga.count_action.checks.check import check, warnings_of
from fpga.count_action.diagnostics import CountActionError, Diagnostic, Refused, Report, quote
from fpga.count_action.elaboration.elaborate import Elaborator
from fpga.count_action.elaboration.instances import MAX_MODULES, make_instances
from fpga.count_action.elaboration.resolve import resolve
from fpga.count_action.language.parse import parse_tree
from fpga.count_action.language.syntax import RESERVED, FileText, Import, InputText, ModuleText, Section
from fpga.count_action.model import Datapath, Location
from fpga.count_action.verilog.text import KEYWORDS


@dataclass(frozen=True, slots=True)
class Checked:
    """A datapath that has passed all checks; what may still be a mistake; and what was taken for granted.

    `imported` are the files that the text imports, by their paths seen from it.
    """

    datapath: Datapath
    warnings: tuple[Diagnostic, ...] = ()
    inferences: tuple[Diagnostic, ...] = ()
    imported: tuple[tuple[PurePosixPath, Path], ...] = ()


def load(path: str | Path, parameters: Mapping[str, int] | None = None) -> Checked:
    """Return the datapath that a file describes, with these values for parameters.

    Raises `CountActionError` when the file, or one that it imports, cannot be read or is wrong, and `ImportError`
    when lark is not installed.
    """
    file = str(path)
    try:
        text = read_source(Path(path), Location(file, 1, 1), file)
    except Refused as refused:
        raise CountActionError([refused.diagnostic]) from None
    return parse_text(text, file, parameters)


def parse_text(text: str, file: str = "<text>", parameters: Mapping[str, int] | None = None) -> Checked:
    """Return the datapath that a text describes; raise `CountActionError` for what is not one.

    `file` stands in messages, names the datapath, and is where imports are looked for.
    """
    report = Report()
    tree = parse_tree(text, file)
    imports = Imports(report)
    imports.follow(tree, Path(file))
    report.settle()
    instances = make_instances(tree, imports.modules, parameters or {}, report)
    report.settle()
    if not instances:
        hint = "Write `module NAME {...}`, or `use MODULE as NAME;` for a module of an imported file."
        raise CountActionError([Diagnostic(file, 1, 1, "there is no module in this file", hint)])
    if len(instances) > MAX_MODULES:
        hint = "Split the file."
        raise CountActionError(
            [Diagnostic(file, 1, 1, f"{len(instances)} modules; at most {MAX_MODULES} are allowed", hint)]
        )
    elaborator = Elaborator(report)
    sections = (each for each in tree.statements if isinstance(each, Section))
    declared = tuple(item for section in sections for item in section.items if isinstance(item, InputText))
    inputs = elaborator.inputs(declared, {})
    modules = [elaborator.module(instance) for instance in instances]
    report.settle()
    datapath = resolve(_datapath_name(file), modules, inputs, report)
    errors = check(datapath)
    if errors:
        for error in errors:
            report.error(error)
        report.settle()
    # One note for each place: ranges repeat notes, and so do two instances of a module.
    warnings = tuple(
        {
            (each.file, each.line, each.column): each
            for each in reversed([*report.warnings, *warnings_of(datapath)])
        }.values()
    )[::-1]
    return Checked(datapath, warnings, tuple(report.inferences), tuple(imports.files.items()))


def _datapath_name(file: str) -> str:
    """Return the name of the datapath in a file: that of the file, made of what names are made of."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(file.replace("\0", "_")).stem).strip("_")[:64]
    if not stem or file.startswith("<"):
        return "datapath"
    if stem in KEYWORDS or stem in RESERVED or stem.startswith("count_action"):
        stem = f"{stem[:60]}_top"
    return stem if not stem[0].isdigit() else f"_{stem}"[:64]


MAX_BYTES = 1 << 20
"""A larger file is not read."""
_MAX_IMPORTS = 200
_HERE = PurePosixPath()
LIBRARY = Path(__file__).resolve().parents[1] / "library"
"""Folder in which an imported file is looked for when it is not next to the one that imports it."""


def read_source(path: Path, at: Location, wanted: str) -> str:
    """Return the text of a file. Bytes that are not UTF-8 become U+FFFD, which the parser refuses with its place.

    Raises `Refused` at `at` when the file cannot be read.
    """
    shown = quote(wanted)
    try:
        if path.is_dir():
            raise Refused(at, f"{shown} is a folder", "Name a file in it.")
        if not path.is_file():
            raise Refused(at, f"there is no file {shown}", "Check the name and the folder that is searched.")
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
            at, f"{shown} cannot be read: {error}", "Check the name and the permissions of the file."
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
            raise Refused(wanted.at, message, "Move the part that both need into a third file.")
        if real in self._read:
            return
        if len(self._read) >= _MAX_IMPORTS or len(chain) > 40:
            raise Refused(
                wanted.at, f"more than {_MAX_IMPORTS} files, or 40 within each other", "Merge some of them."
            )
        self._read.add(real)
        try:
            tree = parse_tree(read_source(found, wanted.at, wanted.path), str(found))
        except CountActionError as error:
            for each in error.errors:
                self.report.error(each)
            return
        for module in tree.modules():
            known = self.modules.setdefault(module.name, module)
            if known is not module:
                message = f"module {quote(module.name)} is defined at {known.at} and at {module.at}"
                raise Refused(wanted.at, message, "Rename one of them.")
        self.follow(tree, found, chain, said.parent)


def _find(wanted: Import, folder: Path) -> Path:
    if not wanted.path:
        raise Refused(wanted.at, "the import names no file", 'Write import "FILE.ca";')
    try:
        neighbour = folder / wanted.path
        return (
            neighbour
            if neighbour.is_file() or not (LIBRARY / wanted.path).is_file()
            else LIBRARY / wanted.path
        )
    except (OSError, ValueError) as error:
        raise Refused(
            wanted.at, f"{quote(wanted.path)} is not a valid file name: {error}", "Check it."
        ) from error
