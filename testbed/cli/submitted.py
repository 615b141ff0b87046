"""Process of a run: `python -m testbed.cli.submitted RUN RUNS LAB=FILE...`, which only the service starts.

The process claims the run, runs its command as the command line does, and stores the output. If an earlier process of
the run was killed, this process resumes the operation. If that operation had sent nothing to a device, this process
executes the run from the start.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from lightbed.errors import LightbedError
from testbed.cli.app import run_app
from testbed.cli.output import print_json, report_error
from testbed.commands.documents import EXIT_DONE, EXIT_ERROR
from testbed.commands.table import load_command
from testbed.log_context import about
from testbed.observe.traces import trace_if_configured
from testbed.operate.intent import load_intents
from testbed.operate.recovery.records import OperationRecord, load_operations
from testbed.operation_errors import OperationRefused
from testbed.service.labs import check_etag, load_topology_document, make_etag
from testbed.service.requests import Request, parse_request
from testbed.service.runs import Run, RunStore
from testbed.service.workers import get_run_folder
from testbed.storage.address import choose_database, get_database_address
from testbed.storage.database import Database


def main(run_id: str, runs_dir: Path, lab_files: Mapping[str, Path]) -> None:
    """Execute a run and store its outcome. Do nothing if the run has ended, or if another process executes it."""
    choose_database(os.environ.get("LIGHTBED_DATABASE", ""))
    database = Database(get_database_address(runs_dir), keep_open=False)
    store = RunStore(database)
    run = store.claim_run(run_id)
    if run is None:
        return
    output, messages = io.StringIO(), io.StringIO()
    trace_if_configured()
    with redirect_stdout(output), redirect_stderr(messages), about(run=run.id):
        try:
            exit_code = carry_out(run, lab_files, runs_dir)
        except SystemExit as error:  # raised for an option that the command does not know
            exit_code = error.code if isinstance(error.code, int) else EXIT_ERROR
        except Exception as error:  # noqa: BLE001 - the run must end, whatever the error
            print_json({"error": {"code": "internal", "who": "ourselves", "message": f"{error!r}"}})
            exit_code = EXIT_ERROR
    texts = (_shorten_paths(text.getvalue(), run, runs_dir) for text in (output, messages))
    store.store_finished(run_id, exit_code, *texts)
    database.close()


def _shorten_paths(text: str, run: Run, runs_dir: Path) -> str:
    """Return the text with the paths of the run's files shortened, so that they begin with the id of the run."""
    return text.replace(f"{get_run_folder(runs_dir, run.id)}/", f"{run.id}/")


def carry_out(run: Run, lab_files: Mapping[str, Path], runs_dir: Path) -> int:
    """Execute the command of a run, or resume its operation; return the exit code."""
    try:
        request = parse_request(run.request)
    except LightbedError as request_error:
        report_error(request_error, as_json=True)
        return EXIT_ERROR
    command_type = load_command(run.command.partition(" --")[0])
    if run.attempts > 1 and command_type is not None and not command_type.is_repeatable:
        error = OperationRefused(
            f"run {run.id} was killed, and its program is not started again: submit it again"
        )
        report_error(error, as_json=not request.text)
        return EXIT_ERROR
    lease_id = getattr(request, "lease", "")
    lease_options = [f"--lease={lease_id}"] if lease_id else []
    earlier_operation = find_earlier_operation(run, runs_dir) if run.attempts > 1 else None
    if earlier_operation is not None:
        intents = [
            intent for intent in load_intents(runs_dir, run.lab) if intent.operation == earlier_operation.id
        ]
        if any(intent.state == "verified" for intent in intents):
            return _print_verified(earlier_operation, runs_dir)
        if intents or any(step.row["intent_at"] for step in earlier_operation.steps):
            return _resume_operation(request, earlier_operation, lab_files[run.lab], runs_dir, lease_options)
    try:
        if_match = getattr(request, "if_match", "")
        if if_match:
            # Another run may have changed the topology since this one was submitted.
            current_tag = make_etag(load_topology_document(runs_dir, run.lab))
            check_etag(if_match, current_tag, f"the topology of {run.lab}")
        arguments = request.make_arguments(lab_files, runs_dir, get_run_folder(runs_dir, run.id))
    except LightbedError as error:  # the topology has changed, or the lab of a switch is down
        report_error(error, as_json=not request.text)
        return EXIT_ERROR
    return run_app(arguments)


def find_earlier_operation(run: Run, runs_dir: Path) -> OperationRecord | None:
    """Return the newest operation of an earlier attempt of a run, or None."""
    records = [record for record in load_operations(runs_dir, run.lab) if record.row.get("run") == run.id]
    return records[-1] if records else None


def _resume_operation(
    request: Request, operation: OperationRecord, lab_file: Path, runs_dir: Path, lease_options: list[str]
) -> int:
    really_move = getattr(request, "really_move", None)
    options = [f"--runs-dir={runs_dir}", f"--hosts={getattr(request, 'hosts', 'auto')}", *lease_options]
    options += [f"--really-move={really_move}"] if really_move else []
    options += [] if request.text else ["--json"]
    return run_app(["resume", *options, "--", str(lab_file), operation.id])


def _print_verified(operation: OperationRecord, runs_dir: Path) -> int:
    """Print the document that a resume would print, because the earlier process ended after the verification."""
    intents = load_intents(runs_dir, str(operation.row["lab"]))
    epoch = next((intent.epoch for intent in intents if intent.operation == operation.id), None)
    print_json(
        {
            "lab": operation.row["lab"],
            "operation": operation.id,
            "state": "verified",
            "reason": "finished and proven before its process ended",
            "epoch": epoch,
            "steps": [step.json() for step in operation.steps],
            "unfinished": [],
        }
    )
    return EXIT_DONE


if __name__ == "__main__":
    assignments = (text.partition("=") for text in sys.argv[3:])
    main(sys.argv[1], Path(sys.argv[2]), {lab: Path(path) for lab, _, path in assignments})
