"""A simulated Calient S-series: TL1 raw and interactive, and REST, on one state.

Options for what the published material leaves open: `reports=no` (changes are not reported), `change_word=DBGH`
(how one public driver spells the report of a change), `page_rows` (rows after which a TL1 answer is continued in
another block; 0 for never), `echo=no` (the interactive port does not repeat what is typed), `moving=UMA` (a circuit
still looks provisioned while its mirrors move; else `IS`, `RDY`), `rest_waits=no` (REST answers a change before the
mirrors have arrived), `summary=short` (the summary of the ports tells no states), `bulk_results=flat` (results of a
bulk come as those of a single change, not within `response`).
"""

from __future__ import annotations

from sim.twins.families.calient.circuits import CircuitConfiguration
from sim.twins.families.calient.rest_frontend import RestFrontend
from sim.twins.families.calient.tl1_frontend import PROMPT, CalientTl1
from sim.twins.frontends.http_server import HttpServer
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.05
MOST_PORTS = 320
FACTORY_ACCOUNT = ("admin", "admin")


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Calient; needs as many inputs as outputs, for a port has one fibre of each."""
    settings.only(
        "reports", "change_word", "page_rows", "echo", "moving", "rest_waits", "summary", "bulk_results"
    )
    device = settings.device(switch_time_s=DEFAULT_SWITCH_TIME_S)
    if settings.inputs != settings.outputs or settings.inputs > MOST_PORTS:
        raise SettingError(f"a Calient has as many inputs as outputs, at most {MOST_PORTS}")
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
        reports=_says_yes(settings, "reports"),
        change_word=settings.choice("change_word", "DBCHG", "DBGH"),
    )
    rest = RestFrontend(
        device,
        configuration,
        serial=serial,
        waits=_says_yes(settings, "rest_waits"),
        full_summary=settings.choice("summary", "full", "short") == "full",
        nested_results=settings.choice("bulk_results", "nested", "flat") == "nested",
    )
    echo = _says_yes(settings, "echo")
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


def _says_yes(settings: TwinSettings, option: str) -> bool:
    """Return an option that is yes unless somebody says no."""
    return settings.choice(option, "yes", "no") == "yes"
