"""`countaction prove FILE`: prove the generated SystemVerilog, for all inputs at all times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpga.cli.errors import print_message
from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters
from lightbed.output_file import write_output

if TYPE_CHECKING:
    from fpga.formal import Proof

ModuleName = Annotated[str | None, typer.Option("--module", metavar="NAME", help="Prove only this module.")]
Vcd = Annotated[Path | None, typer.Option("--vcd", metavar="FILE", help="Write a counterexample as VCD.")]

Depth = Annotated[
    int,
    typer.Option(
        "--depth", metavar="N", min=2, max=100, help="Length of counterexamples to search for, in cycles."
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        "--budget", metavar="S", min=1, help="Processor time for each property of a module, in seconds."
    ),
]
AllowVacuous = Annotated[bool, typer.Option("--allow-vacuous", help="Accept counts that can never count.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("prove")(_prove_file)


def _prove_file(
    file: SourceFile,
    parameters: Parameters = None,
    module: ModuleName = None,
    vcd: Vcd = None,
    depth: Depth = 5,
    budget: Budget = 60,
    *,
    allow_vacuous: AllowVacuous = False,
    as_json: AsJson = False,
) -> int:
    """Prove that the RTL of FILE implements it, for all inputs at all times."""
    from fpga.count_action import load
    from fpga.formal import prove
    from fpga.hdl.tools import HdlError

    datapath = load(file, parse_parameters(parameters)).datapath
    try:
        proof = prove(datapath, module, depth=depth, allow_vacuous=allow_vacuous, budget_s=budget)
    except (HdlError, ValueError, KeyError) as error:
        message = str(error.args[0] if isinstance(error, KeyError) else error)
        return print_message(message, as_json=as_json)
    if vcd is not None and proof.vcd_text:
        write_output(vcd, proof.vcd_text)
    print(json.dumps(_make_document(proof)) if as_json else "\n".join(_format_lines(proof)))
    return 0 if proof.ok else 1


def _make_document(proof: Proof) -> dict[str, Any]:
    """Return the proof as one JSON document."""
    return {
        "ok": proof.ok,
        "datapath": proof.datapath,
        "results": [
            {
                "module": result.module,
                "property": result.property,
                "verdict": result.verdict.value,
                "part": result.part_name,
                "cycle": result.cycle,
                "element": result.element,
                "expected": result.expected,
                "seen": result.actual,
            }
            for result in proof.results
        ],
        "covered": [
            {
                "module": cover.module,
                "part": cover.part_name,
                "what": cover.statement,
                "reached": cover.is_reached,
            }
            for cover in proof.cover_results
        ],
        "counterexample": list(proof.counterexample),
    }


def _format_lines(proof: Proof) -> list[str]:
    """Return a line for every property of every module, the reached cover statements, and the counterexample."""
    from fpga.formal import Verdict
    from fpga.formal.properties import CLAIM_PROPERTY, PROPERTIES
    from fpga.formal.sby import COVER_CYCLES

    statements = {property_.name: property_.statement for property_ in PROPERTIES}
    claim_format = f"{{part}}: {statements[CLAIM_PROPERTY]}"
    lines = []
    for module in dict.fromkeys(result.module for result in proof.results):
        lines.append(f"{module}")
        for result in proof.results:
            if result.module == module:
                statement = (
                    claim_format.format(part=result.part_name)
                    if result.property == CLAIM_PROPERTY
                    else statements[result.property]
                )
                location_text = (
                    f" at {result.part_name} in cycle {result.cycle}"
                    if result.verdict is Verdict.FAILED
                    else ""
                )
                location_text = (
                    f" at {result.part_name}" if result.verdict is Verdict.VACUOUS else location_text
                )
                lines.append(
                    f"  {result.verdict.value + location_text:<14}  {result.property:<7} {statement}"
                )
                if result.element:
                    lines.append(f"    {result.element}: expected {result.expected}, seen {result.actual}")
    reached_covers = [cover for cover in proof.cover_results if cover.is_reached]
    lines.append(f"reached: {len(reached_covers)} of {len(proof.cover_results)} fires, stalls and commits")
    lines += [
        f"  not within {COVER_CYCLES} cycles: {cover.statement} of {cover.module}.{cover.part_name}"
        for cover in proof.cover_results
        if not cover.is_reached
    ]
    if proof.counterexample:
        lines += [
            "counterexample, up to the cycle of the failure:",
            *(f"  {line}" for line in proof.counterexample),
        ]
    return lines
