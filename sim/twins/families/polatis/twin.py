"""A Polatis switch: SCPI on TCP and on a serial line, TL1 and REST, on one state."""

from __future__ import annotations

from sim.twins.families.polatis.rest_frontend import RestFrontend
from sim.twins.families.polatis.scpi_frontend import ScpiFrontend
from sim.twins.families.polatis.scpi_syntax import LineReader
from sim.twins.families.polatis.tl1_frontend import PolatisTl1
from sim.twins.frontends.http_server import HttpServer
from sim.twins.frontends.scpi_errors import ScpiError
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.line import Line

FIRMWARE = "6.5.2.18"
DEFAULT_SWITCH_TIME_S = 0.02
DEFAULT_BAUD = 38400
FACTORY_ACCOUNT = ("admin", "root")


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Polatis. The serial number begins with SIM.

    Options for what the published material leaves open: `when_occupied=reject|replace` (what ADD does on a
    port in use), `hitless=no|yes` (do kept circuits keep their light over a whole-configuration command),
    `separate_lines=no|yes` (are replies to chained queries joined by `;` or on lines of their own),
    `page_rows=N` (long TL1 replies come in pages of so many lines), `post_vanishes_s=T` (pairs made with a
    REST POST go after so long, as one lab saw), `baud=N` (of the serial line).
    """
    settings.only("when_occupied", "hitless", "separate_lines", "page_rows", "post_vanishes_s", "baud")
    device = _device(settings)
    model = f"I-OST-{settings.inputs}x{settings.outputs}-LU1-DMHNS-801"
    serial = settings.serial_number
    scpi = ScpiFrontend(
        device,
        identity=f"Polatis,{model},{serial},{FIRMWARE}",
        network=lambda: _network(made.host_of("scpi")),
        separate_lines=settings.flag("separate_lines"),
    )
    tl1 = _tl1(device, settings, model, serial)
    frontends = {
        **_scpi_ways(scpi, baud=int(settings.number("baud", DEFAULT_BAUD))),
        "tl1": Frontend("polatis+tl1", tl1.serve, max_sessions_here=False),
        "rest": Frontend("polatis+rest", _rest(device, settings, model, serial).serve),
    }
    made = SwitchTwin(device, frontends, expire=tl1.expire, on_boot=scpi.errors.clear)
    return made


def _device(settings: TwinSettings) -> SwitchDevice:
    replaces = settings.choice("when_occupied", "reject", "replace") == "replace"
    return settings.device(
        switch_time_s=DEFAULT_SWITCH_TIME_S,
        when_occupied="replace" if replaces else "reject",
        hitless=settings.flag("hitless"),
    )


def _scpi_ways(scpi: ScpiFrontend, *, baud: int) -> dict[str, Frontend]:
    """Return one interpreter behind a socket and a serial line."""
    return {
        "scpi": Frontend("polatis+scpi", lambda line: _serve_scpi(scpi, line)),
        "serial": Frontend(
            "polatis+serial",
            lambda line: _serve_scpi(scpi, line, ending=b"\r"),
            wire="serial",
            baud=baud,
            max_sessions_here=False,
        ),
    }


def _tl1(device: SwitchDevice, settings: TwinSettings, model: str, serial: str) -> PolatisTl1:
    return PolatisTl1(
        device,
        account=settings.account(*FACTORY_ACCOUNT),
        model=model,
        serial=serial,
        firmware=FIRMWARE,
        page_rows=int(settings.number("page_rows", 0)),
    )


def _rest(device: SwitchDevice, settings: TwinSettings, model: str, serial: str) -> HttpServer:
    product = {
        "manufacturer": "Polatis",
        "serial-number": serial,
        "model-name": model,
        "software-version": FIRMWARE,
    }
    rest = RestFrontend(device, product=product, post_vanishes_s=settings.number("post_vanishes_s", 0.0))
    return HttpServer(rest.routes(), accounts=dict([settings.account(*FACTORY_ACCOUNT)]))


async def _serve_scpi(frontend: ScpiFrontend, line: Line, *, ending: bytes = b"\r\n") -> None:
    commands = LineReader()
    while data := await line.read():
        for text in _complete_lines(frontend, commands, data):
            await line.respond(lambda text=text: _answer(frontend, text, ending))  # type: ignore[misc]


async def _answer(frontend: ScpiFrontend, text: str, ending: bytes) -> bytes:
    return (await frontend.execute(text)).replace(b"\r\n", ending)


def _complete_lines(frontend: ScpiFrontend, commands: LineReader, data: bytes) -> list[str]:
    try:
        return commands.feed(data)
    except ScpiError as error:
        frontend.report(error)
        return []


def _network(host: str) -> str:
    broadcast = ".".join([*host.split(".")[:3], "255"])
    return f'IP="{host}" Gateway="0.0.0.0" Mask="255.255.255.0" Broadcast="{broadcast}"'
