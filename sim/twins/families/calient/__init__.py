"""A simulated Calient S-series switch with raw TL1, interactive TL1 and REST.

Options for behaviour that published documents leave open:

    reports=no         changes are not reported over TL1
    change_word=DBGH   the spelling of the change report in one public driver; the default is DBCHG
    page_rows=N        rows of a TL1 answer after which it continues in another block; 0 for never
    echo=no            the interactive port does not echo its input
    moving=UMA         a circuit whose mirrors move still looks provisioned; the default is IS, RDY
    rest_waits=no      REST answers a change before the mirrors have stopped
    summary=short      the REST summary of the ports contains no states
    bulk_results=flat  results of a bulk request look like those of a single change, without `response`
"""

from __future__ import annotations

from sim.twins.families.calient.circuits import CircuitConfiguration
from sim.twins.families.calient.rest_frontend import RestFrontend
from sim.twins.families.calient.tl1_frontend import PROMPT, CalientTl1
from sim.twins.frontends.http_server import HttpServer
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.05
MAX_PORTS = 320
FACTORY_ACCOUNT = ("admin", "admin")


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Calient switch.

    Raise `SettingError` unless it has as many inputs as outputs (each port has both) and at most `MAX_PORTS` of each.
    """
    settings.only(
        "reports", "change_word", "page_rows", "echo", "moving", "rest_waits", "summary", "bulk_results"
    )
    device = settings.device(switch_time_s=DEFAULT_SWITCH_TIME_S)
    if settings.inputs != settings.outputs or settings.inputs > MAX_PORTS:
        raise SettingError(f"a Calient has as many inputs as outputs, at most {MAX_PORTS}")
    account, serial = settings.account(*FACTORY_ACCOUNT), settings.serial_number
    configuration = CircuitConfiguration(
        device, moving_states=(settings.choice("moving", "IS", "UMA"), "RDY")
    )
    tl1 = CalientTl1(
        device,
        configuration,
        account=account,
        serial=serial,
        page_rows=int(settings.number("page_rows", 0)),
        reports=_is_enabled(settings, "reports"),
        change_word=settings.choice("change_word", "DBCHG", "DBGH"),
    )
    rest = RestFrontend(
        device,
        configuration,
        serial=serial,
        waits=_is_enabled(settings, "rest_waits"),
        full_summary=settings.choice("summary", "full", "short") == "full",
        nested_results=settings.choice("bulk_results", "nested", "flat") == "nested",
    )
    echo = _is_enabled(settings, "echo")
    server = HttpServer(rest.routes(), accounts=dict([account]), cookie="JSESSIONID")
    return SwitchTwin(
        device,
        {
            "tl1": Frontend("calient+tl1", tl1.serve, max_sessions_here=False),
            "tl1-interactive": Frontend(
                "calient+tl1",
                lambda line: tl1.serve(line, greeting=PROMPT, prompt=PROMPT, echo=echo),
                max_sessions_here=False,
            ),
            "rest": Frontend("calient+rest", server.serve),
        },
        expire=lambda: tl1.expire() + server.expire_sessions(),
        faults={**configuration.faults(), **tl1.faults(), **rest.faults()},
        on_boot=configuration.forget_provisioned,
    )


def _is_enabled(settings: TwinSettings, option: str) -> bool:
    """Return True unless an option is `no`; the default is `yes`. Raise `SettingError` for another value."""
    return settings.choice(option, "yes", "no") == "yes"
