"""A simulated HUBER+SUHNER Polatis optical circuit switch with SCPI, TL1 and REST."""

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


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Polatis switch. Raise `SettingError` for an invalid option.

    Options for behaviour that published documents leave open:

        when_occupied=reject|replace  effect of ADD on a port in use
        hitless=no|yes                whether unchanged circuits stay lit when a command sets all circuits
        separate_lines=no|yes         whether replies to several SCPI queries are on separate lines, or joined by `;`
        page_rows=N                   number of lines on a page of a TL1 reply; 0 for no pages
        own_reports=no|yes            whether TL1 also reports a change to the session that made it
        post_vanishes_s=T             seconds until pairs made with a REST POST disappear, as one lab observed; 0: never
        rest_default=xml|json         format of a REST answer if the client names no format
        rest_nothing=204|200          HTTP status of a read of cross-connects if there are none
        baud=N                        rate of the serial line in bit/s
        product=CODE                  product code, from which drivers read the size
    """
    settings.check_options(
        *("when_occupied", "hitless", "separate_lines", "page_rows", "own_reports", "post_vanishes_s"),
        *("rest_default", "rest_nothing", "baud", "product"),
    )
    must_replace = settings.read_choice("when_occupied", "reject", "replace") == "replace"
    device = settings.make_device(
        switch_time_s=DEFAULT_SWITCH_TIME_S,
        occupied_policy="replace" if must_replace else "reject",
        is_hitless=settings.read_flag("hitless"),
    )
    model = (
        settings.options.get("product")
        or f"I-OST-{settings.input_count}x{settings.output_count}-LU1-DMHNS-801"
    )
    account, serial_number = settings.get_account(*FACTORY_ACCOUNT), settings.serial_number
    scpi = ScpiFrontend(
        device,
        identity=f"Polatis,{model},{serial_number},{FIRMWARE}",
        get_network_text=lambda: _describe_network(switch_twin.get_host("scpi")),
        has_separate_lines=settings.read_flag("separate_lines"),
    )
    attenuators = Attenuators(device)
    tl1 = PolatisTl1(
        device,
        account=account,
        model=model,
        serial_number=serial_number,
        firmware=FIRMWARE,
        attenuators=attenuators,
        page_rows=int(settings.read_number("page_rows", 0)),
        sends_own_reports=settings.read_flag("own_reports"),
    )
    rest = RestFrontend(
        device,
        product={
            "manufacturer": "Polatis",
            "serial-number": serial_number,
            "model-name": model,
            "software-version": FIRMWARE,
        },
        attenuators=attenuators,
        post_lifetime_s=settings.read_number("post_vanishes_s", 0.0),
        default_media="json" if settings.read_choice("rest_default", "xml", "json") == "json" else "xml",
        answers_empty_with_204=settings.read_choice("rest_nothing", "204", "200") == "204",
    )
    frontends = {
        "scpi": Frontend("polatis+scpi", lambda line: _serve_scpi(scpi, line)),
        "serial": Frontend(
            "polatis+serial",
            lambda line: _serve_scpi(scpi, line, line_end=b"\r"),
            wire="serial",
            baud=int(settings.read_number("baud", DEFAULT_BAUD)),
            enforces_max_sessions=False,
        ),
        "tl1": Frontend("polatis+tl1", tl1.serve, enforces_max_sessions=False),
        "rest": Frontend("polatis+rest", HttpServer(rest.make_routes(), accounts=dict([account])).serve),
    }
    switch_twin = SwitchTwin(device, frontends, expire_logins=tl1.expire_sessions, on_boot=scpi.errors.clear)
    return switch_twin


async def _serve_scpi(frontend: ScpiFrontend, client: Line, *, line_end: bytes = b"\r\n") -> None:
    """Serve one SCPI client. `line_end` ends each answer line: CR LF over TCP, CR on the serial line."""

    async def answer(text: str) -> bytes:
        return (await frontend.execute(text)).replace(b"\r\n", line_end)

    reader = LineReader()
    while data := await client.read():
        try:
            texts = reader.feed(data)
        except ScpiError as error:
            frontend.report(error)
            continue
        for text in texts:
            await client.respond(lambda text=text: answer(text))  # type: ignore[misc]


def _describe_network(host: str) -> str:
    broadcast = ".".join([*host.split(".")[:3], "255"])
    return f'IP="{host}" Gateway="0.0.0.0" Mask="255.255.255.0" Broadcast="{broadcast}"'
