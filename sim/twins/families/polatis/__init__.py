"""A simulated HUBER+SUHNER Polatis optical circuit switch, speaking SCPI, TL1 and REST."""

from __future__ import annotations

from sim.twins.families.polatis.attenuators import Attenuators
from sim.twins.families.polatis.rest_frontend import RestFrontend
from sim.twins.families.polatis.scpi_frontend import LineReader, ScpiFrontend
from sim.twins.families.polatis.tl1_frontend import PolatisTl1
from sim.twins.frontends.http_server import HttpServer
from sim.twins.frontends.scpi import ScpiError
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
    replaces = settings.choice("when_occupied", "reject", "replace") == "replace"
    device = settings.device(
        switch_time_s=DEFAULT_SWITCH_TIME_S,
        when_occupied="replace" if replaces else "reject",
        hitless=settings.flag("hitless"),
    )
    model = settings.options.get("product") or f"I-OST-{settings.inputs}x{settings.outputs}-LU1-DMHNS-801"
    account, serial = settings.account(*FACTORY_ACCOUNT), settings.serial_number
    scpi = ScpiFrontend(
        device,
        identity=f"Polatis,{model},{serial},{FIRMWARE}",
        network=lambda: _network(made.host_of("scpi")),
        separate_lines=settings.flag("separate_lines"),
    )
    attenuators = Attenuators(device)
    tl1 = PolatisTl1(
        device,
        account=account,
        model=model,
        serial=serial,
        firmware=FIRMWARE,
        attenuators=attenuators,
        page_rows=int(settings.number("page_rows", 0)),
        own_reports=settings.flag("own_reports"),
    )
    rest = RestFrontend(
        device,
        product={
            "manufacturer": "Polatis",
            "serial-number": serial,
            "model-name": model,
            "software-version": FIRMWARE,
        },
        attenuators=attenuators,
        post_vanishes_s=settings.number("post_vanishes_s", 0.0),
        default="json" if settings.choice("rest_default", "xml", "json") == "json" else "xml",
        tells_nothing_by_204=settings.choice("rest_nothing", "204", "200") == "204",
    )
    frontends = {
        "scpi": Frontend("polatis+scpi", lambda line: _serve_scpi(scpi, line)),
        "serial": Frontend(
            "polatis+serial",
            lambda line: _serve_scpi(scpi, line, ending=b"\r"),
            wire="serial",
            baud=int(settings.number("baud", DEFAULT_BAUD)),
            max_sessions_here=False,
        ),
        "tl1": Frontend("polatis+tl1", tl1.serve, max_sessions_here=False),
        "rest": Frontend("polatis+rest", HttpServer(rest.routes(), accounts=dict([account])).serve),
    }
    made = SwitchTwin(device, frontends, expire=tl1.expire, on_boot=scpi.errors.clear)
    return made


async def _serve_scpi(frontend: ScpiFrontend, line: Line, *, ending: bytes = b"\r\n") -> None:
    """Serve one client of the interpreter behind the socket and the serial line, which end answers each in its way."""

    async def answer(text: str) -> bytes:
        return (await frontend.execute(text)).replace(b"\r\n", ending)

    commands = LineReader()
    while data := await line.read():
        try:
            texts = commands.feed(data)
        except ScpiError as error:
            frontend.report(error)
            continue
        for text in texts:
            await line.respond(lambda text=text: answer(text))  # type: ignore[misc]


def _network(host: str) -> str:
    broadcast = ".".join([*host.split(".")[:3], "255"])
    return f'IP="{host}" Gateway="0.0.0.0" Mask="255.255.255.0" Broadcast="{broadcast}"'
