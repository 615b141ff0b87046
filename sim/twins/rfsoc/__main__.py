"""One twin of a QICK board as a process of its own: an address in, one JSON line out, and an end.

    python -m sim.twins.rfsoc sim://kit --port 8888

Serves QICK's Pyro4 name server and the board on the loopback interface, prints one JSON line when both answer, and
ends when its standard input closes. What QICK's server prints goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence

from lightbed.wording import install_extra
from sim.twins.rfsoc.address import AddressError


def arguments() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m sim.twins.rfsoc", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "address", nargs="?", default="sim://kit", help="sim://kit, sim://loopback?delay_ns=35.5"
    )
    parser.add_argument("--port", type=int, default=0, help="of the name server; default: any free one")
    parser.add_argument("--name", default="myqick", help="of the board, as the name server is to know it")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Serve one twin; ends with 2 for an address that names none, and 1 when it cannot serve."""
    parser = arguments()
    options = parser.parse_args(words)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from sim.twins.rfsoc.server import serve

            serving = serve(options.address, port=options.port, name=options.name)
    except AddressError as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        parser.exit(1, f"cannot serve: {error}; {install_extra('qick')}\n")
    except (OSError, RuntimeError) as error:
        parser.exit(1, f"cannot serve: {error}\n")
    ready = {
        "ready": True,
        "simulated": True,
        "address": options.address,
        "port": serving.port,
        "name": serving.name,
        "url": serving.url,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr):  # QICK's streaming reader prints, too
        while os.read(0, 4096):
            pass


if __name__ == "__main__":
    main()
