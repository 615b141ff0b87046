"""Run one simulated QICK board in its own process.

    python -m sim.twins.rfsoc sim://kit --port 8888

The program serves QICK's Pyro4 name server and the board on the loopback interface. It prints one JSON line when both
accept clients, and ends when its standard input closes. Output of QICK's server goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence

from lightbed.wording import describe_extra
from sim.twins.rfsoc.address import AddressError


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m sim.twins.rfsoc", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "address", nargs="?", default="sim://kit", help="sim://kit, sim://loopback?delay_ns=35.5"
    )
    parser.add_argument("--port", type=int, default=0, help="port of the name server; default: any free port")
    parser.add_argument("--name", default="myqick", help="name of the board at the name server")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Serve one twin. Exit with status 2 for an invalid address, or 1 if the twin cannot be served."""
    parser = make_parser()
    options = parser.parse_args(words)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from sim.twins.rfsoc.server import serve

            served_twin = serve(options.address, port=options.port, name=options.name)
    except AddressError as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        parser.exit(1, f"cannot serve: {error}; {describe_extra('qick')}\n")
    except (OSError, RuntimeError) as error:
        parser.exit(1, f"cannot serve: {error}\n")
    ready_line = {
        "ready": True,
        "simulated": True,
        "address": options.address,
        "port": served_twin.port,
        "name": served_twin.name,
        "url": served_twin.url,
    }
    sys.stdout.write(json.dumps(ready_line) + "\n")
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):  # QICK's streaming reader prints too
        while os.read(0, 4096):
            pass


if __name__ == "__main__":
    main()
