"""Addresses of buses, for command lines and configuration files.

| address | bus |
|---|---|
| `fastsim://FILE` | the fast simulator, in this process; with `?engine=reference` the reference simulator |
| `verilator://FILE` | the AXI4-Lite top under Verilator, built at the first use |
| `pynq://0xA0000000` | the registers at that address, on the board where this runs |
| `pynq://HOST[:PORT]/0xA0000000` | the registers at that address, on a board that runs the PYNQ.remote server |

FILE is a source text (`.ca`) or a datapath as JSON (`.json`). Parameters of a `.ca` file follow its path, as in
`fastsim://streamer.ca?num_DACs=4`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from fpga.bus.protocol import BusUnavailable, RegisterBus
from fpga.bus.simulated import Engine, SimulatedBus
from fpga.count_action.json_form import datapath_from_json
from fpga.count_action.model import Datapath

_SCHEMES = ("fastsim", "pynq", "verilator")


def open_bus(address: str) -> RegisterBus:
    """Return the bus at an address (see the module).

    Raise ValueError for an address that is not valid, BusUnavailable if nothing answers there or a library is missing,
    CountActionError for a text with errors, and OSError if the file cannot be read.
    """
    url = urlsplit(address)
    if url.scheme not in _SCHEMES:
        raise ValueError(
            f"{address!r}: the scheme must be one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}."
        )
    if url.scheme == "pynq":
        return _open_pynq(address, url)
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    engine = options.pop("engine", "fast")
    datapath = load_datapath(Path(url.netloc + url.path), _parse_parameters(address, options))
    return make_verilated_bus(datapath) if url.scheme == "verilator" else make_simulated_bus(datapath, engine)


def load_datapath(path: Path, parameters: Mapping[str, int] | None = None) -> Datapath:
    """Return the datapath in a `.ca` or `.json` file.

    Raise OSError, CountActionError for a text with errors, and ValueError for JSON that is not a datapath, or
    parameters for JSON.
    """
    if path.suffix == ".json":
        if parameters:
            raise ValueError(
                f"{path} is already elaborated: its parameters are fixed. Set parameters on the .ca file "
                "instead."
            )
        return datapath_from_json(path.read_text(encoding="utf-8"))
    from fpga.count_action import load

    return load(path, dict(parameters or {})).datapath


def make_simulated_bus(datapath: Datapath, engine: str = "fast") -> SimulatedBus:
    """Return a bus to a simulated datapath; `engine` is `fast` or `reference`.

    Raise ValueError for another engine, and BusUnavailable if the fast engine lacks numba.
    """
    if engine not in {"fast", "reference"}:
        raise ValueError(f"engine={engine}: choose fast or reference.")
    return SimulatedBus(datapath, _make_engine(datapath, engine))


def _make_engine(datapath: Datapath, engine: str) -> Engine:
    if engine == "reference":
        from fpga.count_action.simulate.reference import ReferenceSimulator

        return ReferenceSimulator(datapath)
    from fpga.count_action.simulate import compile_datapath

    try:
        return compile_datapath(datapath)
    except ImportError as error:
        raise BusUnavailable(f"{error}, or use the reference simulator: engine=reference") from error


def make_verilated_bus(datapath: Datapath) -> RegisterBus:
    """Return a bus to the AXI4-Lite top of a datapath under Verilator, which is built at the first use.

    Raise BusUnavailable if Verilator is missing.
    """
    from fpga.bus.axi_pins import AxiPinsBus
    from fpga.hdl.tools import ToolMissing
    from fpga.hdl.verilator import build
    from fpga.registers.build import make_axi_design

    try:
        # Driver and registers spend their time in Python, so more optimisation would only make the build longer.
        return AxiPinsBus(build(make_axi_design(datapath), optimise_flag="-O1"))
    except ToolMissing as error:
        raise BusUnavailable(str(error)) from error


def _open_pynq(address: str, url: SplitResult) -> RegisterBus:
    from fpga.bus.pynq import REMOTE_PORT, open_local, open_remote

    is_remote = bool(url.path.strip("/"))
    try:
        base_address = int(url.path.strip("/") if is_remote else url.netloc, 16)
        port = url.port or REMOTE_PORT
    except ValueError:
        raise ValueError(f"{address!r}: expected pynq://0xBASE or pynq://HOST[:PORT]/0xBASE.") from None
    return open_remote(url.hostname or "", base_address, port=port) if is_remote else open_local(base_address)


def _parse_parameters(address: str, options: Mapping[str, str]) -> dict[str, int]:
    try:
        return {name: int(value, 0) for name, value in options.items()}
    except ValueError:
        raise ValueError(f"{address!r}: parameters must be integers, as in ?num_DACs=4.") from None
