"""The watcher process, which rolls back to the previous epoch unless an apply is confirmed in time.

`python -m testbed.commands.lab.confirmation` runs in its own session, so that neither Ctrl-C nor a closed terminal ends
it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightbed.errors import LightbedError
from testbed.commands.context import CommandContext
from testbed.commands.declare import carry_out
from testbed.commands.documents import EXIT_DONE
from testbed.commands.lab.rollback import Rollback
from testbed.operate.confirmation import ConfirmationLog
from testbed.storage.address import choose_database


def main(arguments: list[Any]) -> int:
    """Arm the confirmation of an epoch, wait, roll back unless it is confirmed, and return 0.

    Arguments are the directory of runs, the lab file, the epoch, the kind of hosts and, for a real lab, its name.
    """
    from testbed.leases.choice import select_lease as choose_lease
    from testbed.observe.json_log import log_from_environment
    from testbed.observe.traces import trace_if_configured
    from testbed.operate.journal import open_journal

    runs_dir, lab_file, epoch, hosts, *really_move = arguments
    choose_database(os.environ.get("LIGHTBED_DATABASE", ""))
    choose_lease(os.environ.get("LIGHTBED_LEASE", ""))
    with suppress(OSError):  # a log that cannot be written must not prevent the rollback
        log_from_environment()
    trace_if_configured()
    os.chdir("/")
    with open_journal(runs_dir) as journal:
        confirmations = ConfirmationLog(journal, CommandContext(Path(lab_file)).lab.name)

        def roll_back_to_epoch(target_epoch: int) -> str:
            # A new context, which reads the lab file at the time of the rollback.
            rollback_context = CommandContext(Path(lab_file), Path(runs_dir))
            return _roll_back(
                Rollback(epoch=target_epoch, hosts=hosts, really_move="".join(really_move) or None),
                rollback_context,
            )

        print(confirmations.watch(int(epoch), roll_back_to_epoch), flush=True)
    return 0


def _roll_back(command: Rollback, context: CommandContext) -> str:
    """Run `testbed rollback`. Return why it failed, or "" if it succeeded."""
    try:
        document = carry_out(command, context)
    except KeyboardInterrupt:
        return "interrupted"
    except (LightbedError, OSError) as error:
        return str(error)
    return "" if document.exit_code == EXIT_DONE else context.lines[-1]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
