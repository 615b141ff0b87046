"""The files of a built folder, held against the text that lies with them.

The datapath is proven, from the very files, against what the language says of the text (`fpga.formal`). Each top is
simulated, from the very files, against the register map of the text. What is no hardware is compared by what it says.
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
from fpga.formal.specification import Specification
from fpga.formal.subjects import find_hidden_wires
from fpga.formal.verdicts import Result
from fpga.hdl import icarus
from fpga.hdl.design import Design, design_of
from fpga.hdl.stimulus import generate_stimulus
from fpga.hdl.tools import BadOutput, HdlError, ToolFailed, ToolMissing
from fpga.registers.build import document_files
from fpga.registers.register_list import Streams
from fpga.registers.top import Top, block_files
from fpga.verify.bus_record import Breach
from fpga.verify.delivered import Delivered, NotListed, read_folder
from fpga.verify.tops import TOP_PROPERTIES, run_seeds

VERIFIED, FAILED, MISSING, TEXT, UNCHECKED = "verified", "failed", "missing", "text", "not checked"
"""Verdicts about a file."""
_GOOD = {Verdict.PROVEN, Verdict.NOT_APPLICABLE, Verdict.TESTED}


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """A file of the folder, and whether it does or says what the text means."""

    path: str
    sha256: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Everything that was found of a built folder."""

    datapath: str
    files: tuple[FileVerdict, ...]
    properties: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True if every property holds, and no file is missing or wrong."""
        wrong = any(each.verdict in {FAILED, MISSING} for each in self.files)
        return not wrong and all(each.verdict in _GOOD for each in self.properties)


def verify(folder: Path, *, depth: int = sby.DEPTH, timeout_s: float = 300) -> Verification:
    """Hold the files in `folder` against the text there; `depth` is of the search for counterexamples.

    Raises ValueError when it is not a built folder, CountActionError when its text is wrong, ToolMissing.
    """
    delivered = read_folder(folder)
    core = tuple(_core(delivered, depth, timeout_s))
    tops = {streams: tuple(_top(delivered, streams)) for streams in Streams}
    properties = (*core, *(each for results in tops.values() for each in results))
    bad = {streams: not _good(results) for streams, results in tops.items()}
    files = tuple(_files(delivered, core_fails=not _good(core), top_fails=bad))
    return Verification(delivered.datapath.name, files, properties)


def _good(results: tuple[Result, ...]) -> bool:
    return all(each.verdict in _GOOD for each in results)


def _core(delivered: Delivered, depth: int, timeout_s: float) -> Iterator[Result]:
    """Return what is proven of the datapath."""
    datapath = delivered.datapath
    try:
        core = delivered.core
        specification = Specification(datapath, delivered=core)
        renamed = names_in(core, specification)
        specification = replace(specification, renamed=renamed)
        yield from prove_specification(specification, cover=False, depth=depth, timeout_s=timeout_s).results
    except ToolMissing:
        raise
    except (NotListed, ToolFailed, BadOutput) as error:
        yield Result(datapath.name, "sources", Verdict.FAILED, part=_short(error))


def _top(delivered: Delivered, streams: Streams) -> Iterator[Result]:
    """Return what the simulation of a top has shown."""
    top = Top(delivered.datapath, streams).name
    try:
        found = run_seeds(delivered.datapath, streams, delivered.around(streams))
    except ToolMissing:
        raise
    except BadOutput as error:
        yield Result(top, "protocol", Verdict.FAILED, error.port, error.cycle, error.port)
        return
    except (NotListed, HdlError) as error:
        yield Result(top, "sources", Verdict.FAILED, part=_short(error))
        return
    for name in TOP_PROPERTIES:
        yield _report_test(top, name, found.breaches.get(name))


def _report_test(top: str, name: str, breach: Breach | None) -> Result:
    if breach is None:
        return Result(top, name, Verdict.TESTED)
    return Result(
        top, name, Verdict.FAILED, breach.pin, breach.cycle, breach.pin, breach.expected, breach.seen
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _files(
    delivered: Delivered, *, core_fails: bool, top_fails: dict[Streams, bool]
) -> Iterator[FileVerdict]:
    """Return a verdict for every file: those that were expected, in their order, and then all others."""
    present = delivered.files()
    verdicts = dict.fromkeys(delivered.origin.files, TEXT)
    documents = dict(document_files([Top(delivered.datapath, streams) for streams in Streams]))
    for name, made in documents.items():
        if name in present:
            path = delivered.folder / name
            told = path.read_bytes().decode("utf-8", errors="replace")
            verdicts[name] = VERIFIED if same(name, told, made) else FAILED
    verdicts |= _of_hardware(delivered, present, core_fails=core_fails, top_fails=top_fails)
    expected = {*documents, *delivered.origin.files, *_hardware(delivered)}
    verdicts |= dict.fromkeys(expected - present.keys(), MISSING)
    for name in sorted({*present, *verdicts}):
        yield FileVerdict(name, present.get(name, ""), verdicts.get(name, UNCHECKED))


def _hardware(delivered: Delivered) -> dict[str, tuple[Streams, ...]]:
    """Return the files of the hardware, each with the tops that it is for; none for the datapath."""
    datapath = delivered.datapath
    found: dict[str, tuple[Streams, ...]] = {name: () for name, _ in design_of(datapath).sources}
    for streams in Streams:
        top = Top(datapath, streams).name
        blocks = [path.name for path in block_files(streams)]
        for name in (*blocks, f"{top}.f", f"{top}.sv", f"{top}_registers.v"):
            found[name] = (*found.get(name, ()), streams)
    return found


def _of_hardware(
    delivered: Delivered, present: dict[str, str], *, core_fails: bool, top_fails: dict[Streams, bool]
) -> dict[str, str]:
    """Return the verdicts about the hardware.

    Where a property fails, files that are as they would be made now are not the reason, unless all of them are.
    """
    verdicts = {}
    for name, tops in _hardware(delivered).items():
        if name in present:
            fails = any(top_fails[streams] for streams in tops) if tops else core_fails
            verdicts[name] = FAILED if fails else VERIFIED
    suspects = [name for name, verdict in verdicts.items() if verdict == FAILED]
    made = _make_hardware(delivered) if suspects else {}
    changed = [name for name in suspects if name in made and delivered.text(name) != made[name]]
    unsure = [name for name in suspects if name not in made]
    if changed:
        verdicts |= {name: VERIFIED for name in suspects if name not in {*changed, *unsure}}
        verdicts |= {name: VERIFIED for name in unsure if _is_explained(name, changed, delivered)}
    return verdicts


def _make_hardware(delivered: Delivered) -> dict[str, str]:
    """Return the hardware as it would be made now, as far as that is quick."""
    datapath = delivered.datapath
    made = dict(design_of(datapath).sources)
    for streams in Streams:
        made |= {path.name: path.read_text(encoding="ascii") for path in block_files(streams)}
        top = Top(datapath, streams)
        made[f"{top.name}.sv"] = top.text
    return made


def _is_explained(name: str, changed: list[str], delivered: Delivered) -> bool:
    """Return whether a file of a top need not be wrong, because another file of that top has changed."""
    tops = set(_hardware(delivered)[name])
    return any(tops & set(_hardware(delivered).get(each, ())) for each in changed)


_COMMENTS = {
    ".rdl": r"//[^\n]*|/\*.*?\*/",
    ".h": r"//[^\n]*|/\*.*?\*/",
    ".tcl": r"^\s*#[^\n]*",
    ".f": r"//[^\n]*",
    ".md": r"<!--.*?-->",
    ".xml": r"<!--.*?-->",
}


def same(name: str, delivered: str, made: str) -> bool:
    """Return whether two texts of a file say the same."""
    suffix = PurePath(name).suffix
    meaning = _MEANINGS.get(suffix, _words(_COMMENTS.get(suffix, r"(?!)")))
    try:
        return meaning(delivered) == meaning(made)
    except (ValueError, SyntaxError):
        return False


def _words(comment: str) -> Callable[[str], object]:
    """Return a function to the words of a text; strings are one word."""

    def words(text: str) -> list[str]:
        kept = re.sub(
            rf'("(?:[^"\\]|\\.)*")|(?:{comment})', lambda found: found[1] or " ", text, flags=_FLAGS
        )
        return re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|[^\w\s]', kept)

    return words


_FLAGS = re.MULTILINE | re.DOTALL


_MEANINGS: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".py": lambda text: ast.dump(ast.parse(text)),
}


_CYCLES = 200
_VARIABLE = re.compile(r"\$var \w+ +(\d+) +(\S+) +(\S+)")
_Series = tuple[tuple[int, str], ...]


def names_in(core: Design, specification: Specification) -> dict[str, str]:
    """Return the wires of the proof that a delivered datapath calls otherwise, with the names that they have there."""
    wanted = find_hidden_wires(specification)
    rows = generate_stimulus(specification.datapath, _CYCLES, seed=99)
    try:
        there = _wires(icarus.dump(core, rows))
    except HdlError:
        return {}  # whatever it is, the proof says it
    missing = {name: width for name, width in wanted.items() if there.get(name, (0, ()))[0] != width}
    if not missing:
        return {}
    made = _wires(icarus.dump(design_of(specification.datapath), rows))
    found = {name: _alike(name, made.get(name), there) for name in missing}
    return {name: other for name, other in found.items() if other}


def _alike(name: str, wire: tuple[int, _Series] | None, there: Mapping[str, tuple[int, _Series]]) -> str:
    """Return the wire that does the same, the one with the most similar name if there are several."""
    same = [other for other, each in there.items() if each == wire]
    return max(same, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio(), default="")


def _wires(dump: str) -> dict[str, tuple[int, _Series]]:
    """Return the wires below `bench.dut` with their widths and their changes."""
    scopes: list[str] = []
    codes: dict[str, list[tuple[str, int]]] = {}
    changes: dict[str, list[tuple[int, str]]] = {}
    now = 0
    for line in dump.splitlines():
        if line.startswith("$scope"):
            scopes.append(line.split()[2])
        elif line.startswith("$upscope"):
            scopes.pop()
        elif found := _VARIABLE.match(line):
            codes.setdefault(found[2], []).append((".".join([*scopes[2:], found[3]]), int(found[1])))
        elif line.startswith("#"):
            now = int(line[1:])
        elif change := re.match(r"b?([01xz]+) ?(\S+)$", line):
            changes.setdefault(change[2], []).append((now, change[1]))
    return {
        name: (width, tuple(changes.get(code, ()))) for code, names in codes.items() for name, width in names
    }
