"""Verification of a built folder against the source text in it.

The datapath in the folder is proven against the source text (`fpga.formal`). Each top in the folder is simulated
against the register map of the text. Other files are compared with newly generated ones, apart from comments.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from fpga.formal import Verdict, sby
from fpga.formal.prove import prove_specification
from fpga.formal.search import BUDGET_S
from fpga.formal.specification import Specification
from fpga.formal.subjects import find_hidden_wires
from fpga.formal.verdicts import Result
from fpga.hdl import icarus
from fpga.hdl.design import Design, make_design
from fpga.hdl.stimulus import generate_stimulus
from fpga.hdl.tools import BadOutput, HdlError, ToolFailed, ToolMissing
from fpga.registers.build import list_top_sources, write_document_texts
from fpga.registers.register_list import StreamAccess
from fpga.registers.top import Top
from fpga.verify.bus_record import Breach
from fpga.verify.delivered import DeliveredFolder, MissingFileError, read_folder
from fpga.verify.tops import TOP_PROPERTIES, run_seeds

VERIFIED, FAILED, MISSING, SOURCE_TEXT, UNCHECKED = "verified", "failed", "missing", "text", "not checked"
"""Verdicts about a file."""
_GOOD_VERDICTS = {Verdict.PROVEN, Verdict.NOT_APPLICABLE, Verdict.TESTED}


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """A file of the folder, and its verdict."""

    path: str
    sha256: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of the verification of a built folder."""

    datapath: str
    files: tuple[FileVerdict, ...]
    properties: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True if every property holds, and no file is missing or failed."""
        has_bad_file = any(file.verdict in {FAILED, MISSING} for file in self.files)
        return not has_bad_file and all(result.verdict in _GOOD_VERDICTS for result in self.properties)


def verify(folder: Path, *, depth: int = sby.DEPTH_CYCLES, budget_s: float = BUDGET_S) -> Verification:
    """Verify the files in `folder` against the text in it. Search for counterexamples of up to `depth` cycles.

    Raise ValueError if it is not a built folder, CountActionError if its text has errors, or ToolMissing.
    """
    delivered_folder = read_folder(folder)
    core_results = tuple(_prove_core(delivered_folder, depth, budget_s))
    results_by_top = {
        stream_access: tuple(_simulate_top(delivered_folder, stream_access)) for stream_access in StreamAccess
    }
    properties = (*core_results, *(result for results in results_by_top.values() for result in results))
    is_failing_by_top = {
        stream_access: not _are_all_good(results) for stream_access, results in results_by_top.items()
    }
    files = tuple(
        _judge_files(
            delivered_folder,
            has_core_failed=not _are_all_good(core_results),
            is_failing_by_top=is_failing_by_top,
        )
    )
    return Verification(delivered_folder.datapath.name, files, properties)


def _are_all_good(results: tuple[Result, ...]) -> bool:
    return all(result.verdict in _GOOD_VERDICTS for result in results)


def _prove_core(delivered_folder: DeliveredFolder, depth: int, budget_s: float) -> Iterator[Result]:
    """Yield the results of the proof of the datapath."""
    datapath = delivered_folder.datapath
    try:
        core_design = delivered_folder.core_design
        specification = Specification(datapath, delivered_design=core_design)
        renamed_wires = find_renamed_wires(core_design, specification)
        specification = replace(specification, delivered_wire_names=renamed_wires)
        yield from prove_specification(
            specification, include_cover=False, depth=depth, budget_s=budget_s
        ).results
    except ToolMissing:
        raise
    except (MissingFileError, ToolFailed, BadOutput) as error:
        yield Result(datapath.name, "sources", Verdict.FAILED, part_name=_shorten(error))


def _simulate_top(delivered_folder: DeliveredFolder, stream_access: StreamAccess) -> Iterator[Result]:
    """Yield the results of the simulation of a top."""
    top = Top(delivered_folder.datapath, stream_access).name
    try:
        result = run_seeds(
            delivered_folder.datapath,
            stream_access,
            delivered_folder.read_sources_around_datapath(stream_access),
        )
    except ToolMissing:
        raise
    except BadOutput as error:
        yield Result(top, "protocol", Verdict.FAILED, error.port, error.cycle, error.port)
        return
    except (MissingFileError, HdlError) as error:
        yield Result(top, "sources", Verdict.FAILED, part_name=_shorten(error))
        return
    for name in TOP_PROPERTIES:
        yield _make_test_result(top, name, result.breaches.get(name))


def _make_test_result(top: str, name: str, breach: Breach | None) -> Result:
    if breach is None:
        return Result(top, name, Verdict.TESTED)
    return Result(
        top, name, Verdict.FAILED, breach.pin, breach.cycle, breach.pin, breach.expected, breach.actual
    )


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _judge_files(
    delivered_folder: DeliveredFolder, *, has_core_failed: bool, is_failing_by_top: dict[StreamAccess, bool]
) -> Iterator[FileVerdict]:
    """Yield a verdict for every file that is expected or present, sorted by name."""
    digests = delivered_folder.hash_files()
    verdicts = dict.fromkeys(delivered_folder.origin.file_names, SOURCE_TEXT)
    documents = dict(
        write_document_texts(
            [Top(delivered_folder.datapath, stream_access) for stream_access in StreamAccess]
        )
    )
    for name, expected_text in documents.items():
        if name in digests:
            path = delivered_folder.folder / name
            text = path.read_bytes().decode("utf-8", errors="replace")
            verdicts[name] = VERIFIED if is_equivalent(name, text, expected_text) else FAILED
    verdicts |= _judge_hardware(
        delivered_folder, digests, has_core_failed=has_core_failed, is_failing_by_top=is_failing_by_top
    )
    expected_names = {
        *documents,
        *delivered_folder.origin.file_names,
        *_map_hardware_to_tops(delivered_folder),
    }
    verdicts |= dict.fromkeys(expected_names - digests.keys(), MISSING)
    for name in sorted({*digests, *verdicts}):
        yield FileVerdict(name, digests.get(name, ""), verdicts.get(name, UNCHECKED))


def _map_hardware_to_tops(delivered_folder: DeliveredFolder) -> dict[str, tuple[StreamAccess, ...]]:
    """Return the names of the hardware files, each with the tops that use it; files of the datapath have none."""
    datapath = delivered_folder.datapath
    tops_by_file: dict[str, tuple[StreamAccess, ...]] = {
        name: () for name, _ in make_design(datapath).sources
    }
    for stream_access in StreamAccess:
        top = Top(datapath, stream_access)
        blocks = [path.name for path in top.block_files]
        for name in (*blocks, f"{top.name}.f", f"{top.name}.sv", f"{top.name}_registers.sv"):
            tops_by_file[name] = (*tops_by_file.get(name, ()), stream_access)
    return tops_by_file


def _judge_hardware(
    delivered_folder: DeliveredFolder,
    digests: dict[str, str],
    *,
    has_core_failed: bool,
    is_failing_by_top: dict[StreamAccess, bool],
) -> dict[str, str]:
    """Return the verdicts about the files of the hardware.

    If a property fails, only files that differ from newly generated files fail; if no file differs, all fail.
    A file that is not generated again fails, too, unless `_is_explained`.
    """
    verdicts = {}
    for name, tops in _map_hardware_to_tops(delivered_folder).items():
        if name in digests:
            has_failed = (
                any(is_failing_by_top[stream_access] for stream_access in tops) if tops else has_core_failed
            )
            verdicts[name] = FAILED if has_failed else VERIFIED
    suspect_names = [name for name, verdict in verdicts.items() if verdict == FAILED]
    generated_files = _make_hardware(delivered_folder) if suspect_names else {}
    changed_names = [
        name
        for name in suspect_names
        if name in generated_files and delivered_folder.read_text(name) != generated_files[name]
    ]
    extra_names = [name for name in suspect_names if name not in generated_files]
    if changed_names:
        verdicts |= {name: VERIFIED for name in suspect_names if name not in {*changed_names, *extra_names}}
        verdicts |= {
            name: VERIFIED for name in extra_names if _is_explained(name, changed_names, delivered_folder)
        }
    return verdicts


def _make_hardware(delivered_folder: DeliveredFolder) -> dict[str, str]:
    """Return newly generated files of the hardware, without the `.f` lists."""
    tops = (Top(delivered_folder.datapath, stream_access) for stream_access in StreamAccess)
    return {name: text for top in tops for name, text in list_top_sources(top)}


def _is_explained(name: str, changed_names: list[str], delivered_folder: DeliveredFolder) -> bool:
    """Return whether a changed file of the same top explains a failure."""
    tops = set(_map_hardware_to_tops(delivered_folder)[name])
    return any(
        tops & set(_map_hardware_to_tops(delivered_folder).get(changed_name, ()))
        for changed_name in changed_names
    )


_COMMENT_PATTERNS = {
    ".rdl": r"//[^\n]*|/\*.*?\*/",
    ".h": r"//[^\n]*|/\*.*?\*/",
    ".tcl": r"^\s*#[^\n]*",
    ".f": r"//[^\n]*",
    ".md": r"<!--.*?-->",
    ".xml": r"<!--.*?-->",
}


def is_equivalent(name: str, actual_text: str, expected_text: str) -> bool:
    """Return whether two texts of a file are equal apart from comments and layout."""
    suffix = PurePath(name).suffix
    normalise = _PARSERS.get(suffix, _make_word_splitter(_COMMENT_PATTERNS.get(suffix, r"(?!)")))
    try:
        return normalise(actual_text) == normalise(expected_text)
    except (ValueError, SyntaxError):
        return False


def _make_word_splitter(comment: str) -> Callable[[str], object]:
    """Return a function that splits a text into words without comments; a string is one word."""

    def split_words(text: str) -> list[str]:
        text_without_comments = re.sub(
            rf'("(?:[^"\\]|\\.)*")|(?:{comment})', lambda match: match[1] or " ", text, flags=_REGEX_FLAGS
        )
        return re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|[^\w\s]', text_without_comments)

    return split_words


_REGEX_FLAGS = re.MULTILINE | re.DOTALL


_PARSERS: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".py": lambda text: ast.dump(ast.parse(text)),
}


_MATCH_CYCLES = 200
_VARIABLE_PATTERN = re.compile(r"\$var \w+ +(\d+) +(\S+) +(\S+)")
_Series = tuple[tuple[int, str], ...]


def find_renamed_wires(core: Design, specification: Specification) -> dict[str, str]:
    """Return the wires of the proof that have another name in a delivered datapath, with their names there.

    They are matched by their values in a simulation.
    """
    widths = find_hidden_wires(specification)
    rows = generate_stimulus(specification.datapath, _MATCH_CYCLES, seed=99)
    try:
        wires = _parse_wires(icarus.dump(core, rows))
    except HdlError:
        return {}  # the proof will report the error
    missing_widths = {name: width for name, width in widths.items() if wires.get(name, (0, ()))[0] != width}
    if not missing_widths:
        return {}
    generated_wires = _parse_wires(icarus.dump(make_design(specification.datapath), rows))
    matches = {name: _find_equal_wire(name, generated_wires.get(name), wires) for name in missing_widths}
    return {name: match for name, match in matches.items() if match}


def _find_equal_wire(
    name: str, wire: tuple[int, _Series] | None, wires: Mapping[str, tuple[int, _Series]]
) -> str:
    """Return the name of the wire with the same values, or "" if there is none.

    If there are several, return the most similar name.
    """
    equal_names = [other_name for other_name, candidate_wire in wires.items() if candidate_wire == wire]
    return max(
        equal_names, key=lambda candidate: difflib.SequenceMatcher(None, name, candidate).ratio(), default=""
    )


def _parse_wires(dump: str) -> dict[str, tuple[int, _Series]]:
    """Return the wires below `bench.dut` in a dump, with their widths and their changes."""
    scopes: list[str] = []
    names_by_code: dict[str, list[tuple[str, int]]] = {}
    changes: dict[str, list[tuple[int, str]]] = {}
    time_ns = 0
    for line in dump.splitlines():
        if line.startswith("$scope"):
            scopes.append(line.split()[2])
        elif line.startswith("$upscope"):
            scopes.pop()
        elif match := _VARIABLE_PATTERN.match(line):
            names_by_code.setdefault(match[2], []).append((".".join([*scopes[2:], match[3]]), int(match[1])))
        elif line.startswith("#"):
            time_ns = int(line[1:])
        elif change := re.match(r"b?([01xz]+) ?(\S+)$", line):
            changes.setdefault(change[2], []).append((time_ns, change[1]))
    return {
        name: (width, tuple(changes.get(code, ())))
        for code, names in names_by_code.items()
        for name, width in names
    }
