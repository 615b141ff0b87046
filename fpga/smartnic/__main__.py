"""`python -m fpga.smartnic`: all files of a board with the smartNIC, and its registers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fpga.registers.build import write_files
from fpga.registers.text import to_json, to_markdown
from fpga.smartnic.build import build_files
from fpga.smartnic.registers import make_smartnic_registers


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files or print the registers, and return exit code 0. Options that are not valid exit with code 2."""
    parser = argparse.ArgumentParser(prog="python -m fpga.smartnic", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="sources, registers and scripts for Vivado")
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="created if missing")
    build.add_argument("--board", default="zcu111", help="default: zcu111")
    registers = commands.add_parser("registers", help="the registers as Markdown")
    registers.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    register_map = make_smartnic_registers()
    if options.command == "registers":
        sys.stdout.write(to_json(register_map) if options.json else to_markdown(register_map))
        return 0
    try:
        files = build_files(options.board)
    except ValueError as error:
        build.error(str(error))
    write_files(files, options.out)
    print(f"{register_map.name}, hash {register_map.digest:08x}: {len(files)} files in {options.out}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
