"""Functions that read a file or a text into a checked datapath: `load` and `parse_text`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fpga.count_action.checks.check import check, find_warnings
from fpga.count_action.diagnostics import CountActionError, Diagnostic, Report, SourceError, quote
from fpga.count_action.elaboration.elaborate import Elaborator
from fpga.count_action.elaboration.instances import MAX_MODULES, make_instances
from fpga.count_action.elaboration.resolve import resolve
from fpga.count_action.language.parse import parse_tree
from fpga.count_action.language.syntax import (
    RESERVED_WORDS,
    FileText,
    ImportText,
    InputText,
    ModuleText,
    Section,
)
from fpga.count_action.model import Datapath, Location
from fpga.count_action.verilog.text import KEYWORDS


@dataclass(frozen=True, slots=True)
class CheckedDatapath:
    """A datapath without errors, its warnings, and the assumptions about undeclared names.

    `imported` maps the paths of imported files, relative to the text, to the files.
    """

    datapath: Datapath
    warnings: tuple[Diagnostic, ...] = ()
    inferences: tuple[Diagnostic, ...] = ()
    imported: tuple[tuple[PurePosixPath, Path], ...] = ()


def load(path: str | Path, parameters: Mapping[str, int] | None = None) -> CheckedDatapath:
    """Return the datapath that a file describes, with the given values of parameters.

    Raise `CountActionError` if the file, or one that it imports, cannot be read or has errors, and `ImportError` if
    lark is not installed.
    """
    file = str(path)
    try:
        text = read_source(Path(path), Location(file, 1, 1), file)
    except SourceError as error:
        raise CountActionError([error.diagnostic]) from None
    return parse_text(text, file, parameters)


def parse_text(
    text: str, file: str = "<text>", parameters: Mapping[str, int] | None = None
) -> CheckedDatapath:
    """Return the datapath that a text describes. Raise `CountActionError` with its errors.

    `file` appears in messages and names the datapath. Imports are searched for in its folder.
    """
    report = Report()
    tree = parse_tree(text, file)
    imports = ImportedModules(report)
    imports.load_imports(tree, Path(file))
    report.raise_errors()
    instances = make_instances(tree, imports.modules, parameters or {}, report)
    report.raise_errors()
    if not instances:
        hint = "Write `module NAME {...}`, or `use MODULE as NAME;` for a module of an imported file."
        raise CountActionError([Diagnostic(file, 1, 1, "there is no module in this file", hint)])
    if len(instances) > MAX_MODULES:
        hint = "Split the file."
        raise CountActionError(
            [Diagnostic(file, 1, 1, f"{len(instances)} modules; at most {MAX_MODULES} are allowed", hint)]
        )
    elaborator = Elaborator(report)
    sections = (statement for statement in tree.statements if isinstance(statement, Section))
    input_texts = tuple(item for section in sections for item in section.items if isinstance(item, InputText))
    inputs = elaborator.elaborate_inputs(input_texts, {})
    modules = [elaborator.elaborate_module(instance) for instance in instances]
    report.raise_errors()
    datapath = resolve(_make_datapath_name(file), modules, inputs, report)
    errors = check(datapath)
    if errors:
        for error in errors:
            report.add_error(error)
        report.raise_errors()
    # One warning per location, because ranges and several instances of a module repeat them.
    warnings = tuple(
        {
            (warning.file, warning.line, warning.column): warning
            for warning in reversed([*report.warnings, *find_warnings(datapath)])
        }.values()
    )[::-1]
    return CheckedDatapath(datapath, warnings, tuple(report.inferences), tuple(imports.files.items()))


def _make_datapath_name(file: str) -> str:
    """Return the name of the datapath in a file: the stem of the file, turned into a valid name."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(file.replace("\0", "_")).stem).strip("_")[:64]
    if not stem or file.startswith("<"):
        return "datapath"
    if stem in KEYWORDS or stem in RESERVED_WORDS or stem.startswith("count_action"):
        stem = f"{stem[:60]}_top"
    return stem if not stem[0].isdigit() else f"_{stem}"[:64]


MAX_BYTES = 1 << 20
"""Largest size of a file."""
_MAX_IMPORTS = 200
_CURRENT_FOLDER = PurePosixPath()
LIBRARY_FOLDER = Path(__file__).resolve().parents[1] / "library"
"""Folder of imported files that are not in the folder of the importing file."""


def read_source(path: Path, location: Location, name: str) -> str:
    """Return the text of a file. Bytes that are not UTF-8 become U+FFFD, which the parser reports with its location.

    Raise `SourceError` at `location` if the file cannot be read.
    """
    quoted_name = quote(name)
    try:
        if path.is_dir():
            raise SourceError(location, f"{quoted_name} is a folder", "Name a file in it.")
        if not path.is_file():
            raise SourceError(
                location, f"there is no file {quoted_name}", "Check the name and the folder that is searched."
            )
        if path.stat().st_size > MAX_BYTES:
            size = path.stat().st_size
            raise SourceError(
                location,
                f"{quoted_name} has {size} bytes; at most {MAX_BYTES} are read",
                "Split it and import the parts.",
            )
        return path.read_bytes().decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise SourceError(
            location,
            f"{quoted_name} cannot be read: {error}",
            "Check the name and the permissions of the file.",
        ) from error


@dataclass
class ImportedModules:
    """Modules of all directly and indirectly imported files."""

    report: Report
    modules: dict[str, ModuleText] = field(default_factory=dict)
    files: dict[PurePosixPath, Path] = field(default_factory=dict)
    """The imported files, by their paths relative to the first file, as the imports write them."""
    _read_paths: set[Path] = field(default_factory=set)

    def load_imports(
        self,
        tree: FileText,
        path: Path,
        importing_files: tuple[Path, ...] = (),
        relative_folder: PurePosixPath = _CURRENT_FOLDER,
    ) -> None:
        """Add the modules of all files that `tree`, the text of `path`, imports.

        `importing_files` are the files whose imports lead to `path`. `relative_folder` is the folder of `path`,
        relative to the first file.
        """
        importing_files = (*importing_files, path.resolve())
        for statement in tree.imports():
            with self.report.catch_errors():
                self._load_import(statement, path.parent, importing_files, relative_folder)

    def _load_import(
        self,
        statement: ImportText,
        folder: Path,
        importing_files: tuple[Path, ...],
        relative_folder: PurePosixPath,
    ) -> None:
        file = _find_import(statement, folder)
        relative_path = relative_folder / statement.path
        self.files[relative_path] = file
        resolved_file = file.resolve()
        if resolved_file in importing_files:
            cycle = " -> ".join(
                imported_file.name
                for imported_file in (*importing_files[importing_files.index(resolved_file) :], resolved_file)
            )
            message = f"these files import each other in a cycle: {cycle}"
            raise SourceError(statement.location, message, "Move the part that both need into a third file.")
        if resolved_file in self._read_paths:
            return
        if len(self._read_paths) >= _MAX_IMPORTS or len(importing_files) > 40:
            raise SourceError(
                statement.location,
                f"more than {_MAX_IMPORTS} imported files, or a chain of over 40",
                "Merge some files.",
            )
        self._read_paths.add(resolved_file)
        try:
            tree = parse_tree(read_source(file, statement.location, statement.path), str(file))
        except CountActionError as error:
            for diagnostic in error.errors:
                self.report.add_error(diagnostic)
            return
        for module in tree.modules():
            earlier_module = self.modules.setdefault(module.name, module)
            if earlier_module is not module:
                locations_text = f"{earlier_module.location} and at {module.location}"
                message = f"module {quote(module.name)} is defined at {locations_text}"
                raise SourceError(statement.location, message, "Rename one of them.")
        self.load_imports(tree, file, importing_files, relative_path.parent)


def _find_import(statement: ImportText, folder: Path) -> Path:
    if not statement.path:
        raise SourceError(statement.location, "the import has no file name", 'Write import "FILE.ca";')
    try:
        neighbour_path = folder / statement.path
        return (
            neighbour_path
            if neighbour_path.is_file() or not (LIBRARY_FOLDER / statement.path).is_file()
            else LIBRARY_FOLDER / statement.path
        )
    except (OSError, ValueError) as error:
        raise SourceError(
            statement.location, f"{quote(statement.path)} is not a valid file name: {error}", "Check it."
        ) from error
