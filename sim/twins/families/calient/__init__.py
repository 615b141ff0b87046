"""A simulated Calient S-series switch with raw TL1, interactive TL1 and REST.

Options for behaviour that published documents leave open:

    reports=no         TL1 does not report changes
    change_word=DBGH   word that announces a change in TL1 reports, as one public driver spells it; default DBCHG
    page_rows=N        maximum number of rows in a block of a TL1 answer; 0 for no limit
    echo=no            the interactive port does not echo its input
    moving=UMA         administrative state of a circuit whose mirrors move; default IS
    rest_waits=no      REST answers a change before the mirrors have stopped
    summary=short      the REST summary of the ports contains no states
    bulk_results=flat  results of a bulk request have no `response`, like the result of a single change
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


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Calient switch, whose ports have an input and an output each.

    Raise `SettingError` for an invalid option, unequal inputs and outputs, or more than `MAX_PORTS` of them.
    """
    settings.check_options(
        "reports", "change_word", "page_rows", "echo", "moving", "rest_waits", "summary", "bulk_results"
    )
    device = settings.make_device(switch_time_s=DEFAULT_SWITCH_TIME_S)
    if settings.input_count != settings.output_count or settings.input_count > MAX_PORTS:
        raise SettingError(f"a Calient has as many inputs as outputs, at most {MAX_PORTS}")
    account, serial = settings.get_account(*FACTORY_ACCOUNT), settings.serial_number
    configuration = CircuitConfiguration(
        device, moving_states=(settings.read_choice("moving", "IS", "UMA"), "RDY")
    )
    tl1 = CalientTl1(
        device,
        configuration,
        account=account,
        serial_number=serial,
        page_rows=int(settings.read_number("page_rows", 0)),
        sends_own_reports=_is_enabled(settings, "reports"),
        change_word=settings.read_choice("change_word", "DBCHG", "DBGH"),
    )
    rest = RestFrontend(
        device,
        configuration,
        serial_number=serial,
        waits_for_motion=_is_enabled(settings, "rest_waits"),
        has_full_summary=settings.read_choice("summary", "full", "short") == "full",
        has_nested_results=settings.read_choice("bulk_results", "nested", "flat") == "nested",
    )
    echoes_input = _is_enabled(settings, "echo")
    server = HttpServer(rest.make_routes(), accounts=dict([account]), cookie_name="JSESSIONID")
    return SwitchTwin(
        device,
        {
            "tl1": Frontend("calient+tl1", tl1.serve, enforces_max_sessions=False),
            "tl1-interactive": Frontend(
                "calient+tl1",
                lambda line: tl1.serve(line, greeting=PROMPT, prompt=PROMPT, echoes_input=echoes_input),
                enforces_max_sessions=False,
            ),
            "rest": Frontend("calient+rest", server.serve),
        },
        expire_logins=lambda: tl1.expire_sessions() + server.expire_sessions(),
        faults={**configuration.list_faults(), **tl1.list_faults(), **rest.list_faults()},
        on_boot=configuration.remove_inactive_circuits,
    )


def _is_enabled(settings: TwinSettings, option: str) -> bool:
    """Return True if an option is `yes`, which is the default. Raise `SettingError` unless it is `yes` or `no`."""
    return settings.read_choice(option, "yes", "no") == "yes"
