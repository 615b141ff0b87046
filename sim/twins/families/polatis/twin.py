"""A Polatis switch: SCPI on TCP and on a serial line, TL1 and REST, on one state."""

from __future__ import annotations

from sim.twins.families.polatis.attenuators import Attenuators
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
    `page_rows=N` (long TL1 replies come in pages of so many lines), `own_reports=no|yes` (does TL1 report a change
    to the session that made it), `post_vanishes_s=T` (pairs made with a REST POST go after so long, as one lab
    saw), `rest_default=xml|json` (what REST answers to a client that names no medium), `rest_nothing=204|200` (how
    a read of cross-connects is answered that finds none), `baud=N` (of the serial line), `product=CODE` (the product
    code, from which drivers read the size).
    """
    settings.only(
        *("when_occupied", "hitless", "separate_lines", "page_rows", "own_reports", "post_vanishes_s"),
        *("rest_default", "rest_nothing", "baud", "product"),
    )
    device = _device(settings)
    model = settings.options.get("product") or f"I-OST-{settings.inputs}x{settings.outputs}-LU1-DMHNS-801"
    serial = settings.serial_number
    scpi = ScpiFrontend(
        device,
        identity=f"Polatis,{model},{serial},{FIRMWARE}",
        network=lambda: _network(made.host_of("scpi")),
        separate_lines=settings.flag("separate_lines"),
    )
    attenuators = Attenuators(device)
    tl1 = _tl1(device, settings, model, serial, attenuators)
    frontends = {
        **_scpi_ways(scpi, baud=int(settings.number("baud", DEFAULT_BAUD))),
        "tl1": Frontend("polatis+tl1", tl1.serve, max_sessions_here=False),
        "rest": Frontend("polatis+rest", _rest(device, settings, model, serial, attenuators).serve),
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


def _tl1(
    device: SwitchDevice, settings: TwinSettings, model: str, serial: str, attenuators: Attenuators
) -> PolatisTl1:
    return PolatisTl1(
        device,
        account=settings.account(*FACTORY_ACCOUNT),
        model=model,
        serial=serial,
        firmware=FIRMWARE,
        attenuators=attenuators,
        page_rows=int(settings.number("page_rows", 0)),
        own_reports=settings.flag("own_reports"),
    )


def _rest(
    device: SwitchDevice, settings: TwinSettings, model: str, serial: str, attenuators: Attenuators
) -> HttpServer:
    product = {
        "manufacturer": "Polatis",
        "serial-number": serial,
        "model-name": model,
        "software-version": FIRMWARE,
    }
    rest = RestFrontend(
        device,
        product=product,
        attenuators=attenuators,
        post_vanishes_s=settings.number("post_vanishes_s", 0.0),
        default="json" if settings.choice("rest_default", "xml", "json") == "json" else "xml",
        tells_nothing_by_204=settings.choice("rest_nothing", "204", "200") == "204",
    )
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
