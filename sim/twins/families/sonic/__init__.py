"""An optical switch that runs SONiC: its shell over SSH, with the commands that concern light.

Columns of tables, modes of `add` and the words for states are those of the public design document (revision 0.4). Our
assumptions: the wording of refusals, that a list is done whole or not at all, that blocked and broken ports are
refused, that tuning takes a tenth of a second (`--switch-time-ms`). The configuration survives a power cycle, as
published; `--boot-mode` has no say. A single command (`ssh HOST COMMAND`) ends with the exit status that bash and
SONiC's command lines give: 1 refused, 2 not understood, 127 unknown. Pipes, redirections and substitutions are not
simulated, and a line with one says so. Options:

    idle_s=0       seconds after which an idle shell is ended; 0 for never
"""

from __future__ import annotations

from sim.twins.families.sonic.commands import Commands
from sim.twins.families.sonic.configuration import Configuration
from sim.twins.families.sonic.shell import UNKNOWN_STATUS, interpret
from sim.twins.frontends.cli import CliFrontend, Manner
from sim.twins.frontends.cli_faults import CliFaults
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

TUNING_S = 0.1

NOISE = "Nov 21 07:30:01.123456 sonic NOTICE swss#orchagent: :- doTask: simulated noise"


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated SONiC switch. Raises `SettingError`."""
    settings.only("idle_s")
    account = settings.account("admin", "YourPaSsWoRd")
    device = settings.device(switch_time_s=TUNING_S)
    device.set_boot_mode("AUTOSAVE")
    configuration = Configuration(device)
    faults = CliFaults(device.faults)
    cli = CliFrontend(
        Commands(configuration, settings.name).table(),
        Manner(
            f"{account[0]}@sonic:~{'#' if account[0] == 'root' else '$'} ",
            user=account[0],
            greeting="Linux sonic (SIMULATED)",
            unknown="command not found",
            unknown_status=UNKNOWN_STATUS,
            leave=frozenset({"logout"}),
            noise=NOISE,
        ),
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", 0) or None,
        interpreter=interpret,
    )
    return SwitchTwin(
        device,
        {"cli": Frontend("sonic-ocs", cli.serve, cli.execute, wire="ssh", account=account)},
        expire=cli.expire,
        faults={**configuration.faults(), **faults.table()},
        on_boot=configuration.forget_ghosts,
    )
