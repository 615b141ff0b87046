"""Run a simulated PYNQ board in its own process: `python -m sim.twins.board FILE`.

FILE is a datapath: source text, or the `.json` representation that `countaction build` writes. The program prints one
JSON line when it accepts clients, and ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fpga.bus import load_datapath, make_simulated_bus
from lightbed.wording import describe_extra
from sim.twins.board.memory import DEFAULT_BASE, Slot


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m sim.twins.board", description="A simulated board that serves PYNQ.remote."
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: any free port; pynq connects to 7967")
    parser.add_argument(
        "--base",
        type=lambda text: int(text, 0),
        default=DEFAULT_BASE,
        help="physical address of the datapath",
    )
    parser.add_argument("--engine", choices=["fast", "reference"], default="reference")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Serve until standard input closes or Ctrl-C is pressed. Exit with status 1 if the board cannot be served."""
    parser = make_parser()
    options = parser.parse_args(words)
    try:
        datapath = load_datapath(options.file)
        slot = Slot(lambda: make_simulated_bus(datapath, options.engine), options.base)
        from sim.twins.board.server import BoardServer  # needs pynq

        with BoardServer(slot, host=options.host, port=options.port) as server:
            ready_line = {"ready": True, "simulated": True, "board": f"{options.host}:{server.port}"}
            sys.stdout.write(
                json.dumps({**ready_line, "base": f"{options.base:#x}", "hash": f"{datapath.digest:08x}"})
            )
            sys.stdout.write("\n")
            sys.stdout.flush()
            sys.stdin.read()
    except KeyboardInterrupt:
        return
    except ImportError as error:
        parser.exit(
            1, f"cannot serve: {error}. Hint: {describe_extra('pynq')}, in an environment of its own\n"
        )
    except (OSError, ValueError) as error:
        parser.exit(1, f"cannot serve: {error}\n")


if __name__ == "__main__":
    main()
