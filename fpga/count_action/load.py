"""From a file or a text to a checked datapath: `load` and `parse_text`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fpga.count_action.checks.check import check, warnings_of
from fpga.count_action.diagnostics import CountActionError, Diagnostic, Refused, Report
from fpga.count_action.elaboration.elaborate import Elaborator
from fpga.count_action.elaboration.instances import MAX_MODULES, make_instances
from fpga.count_action.elaboration.resolve import resolve
from fpga.count_action.language.parse import parse_tree
from fpga.count_action.language.sources import Imports, read_source
from fpga.count_action.language.syntax import RESERVED, FileText, InputText, Section
from fpga.count_action.model import Datapath, Location
from fpga.count_action.verilog.keywords import KEYWORDS


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
    _check_number_of_modules(len(instances), file)
    elaborator = Elaborator(report)
    inputs = elaborator.inputs(_file_inputs(tree), {})
    modules = [elaborator.module(instance) for instance in instances]
    report.settle()
    datapath = resolve(_datapath_name(file), modules, inputs, report)
    errors = check(datapath)
    if errors:
        for error in errors:
            report.error(error)
        report.settle()
    warnings = _one_for_a_place([*report.warnings, *warnings_of(datapath)])
    return Checked(datapath, warnings, tuple(report.inferences), tuple(imports.files.items()))


def _one_for_a_place(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return one note for each place: ranges repeat notes, and so do two instances of a module."""
    return tuple({(each.file, each.line, each.column): each for each in reversed(found)}.values())[::-1]


def _check_number_of_modules(number: int, file: str) -> None:
    if number == 0:
        hint = "Write `module NAME {...}`, or `use MODULE as NAME;` for a module of an imported file."
        raise CountActionError([Diagnostic(file, 1, 1, "there is no module in this file", hint)])
    if number > MAX_MODULES:
        hint = "Split the file."
        raise CountActionError(
            [Diagnostic(file, 1, 1, f"{number} modules; at most {MAX_MODULES} are allowed", hint)]
        )


def _file_inputs(tree: FileText) -> tuple[InputText, ...]:
    return tuple(
        item
        for section in tree.statements
        if isinstance(section, Section)
        for item in section.items
        if isinstance(item, InputText)
    )


def _datapath_name(file: str) -> str:
    """Return the name of the datapath in a file: that of the file, made of what names are made of."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(file.replace("\0", "_")).stem).strip("_")[:64]
    if not stem or file.startswith("<"):
        return "datapath"
    if stem in KEYWORDS or stem in RESERVED or stem.startswith("count_action"):
        stem = f"{stem[:60]}_top"
    return stem if not stem[0].isdigit() else f"_{stem}"[:64]
