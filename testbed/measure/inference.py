"""Inference requests from a host to a board: attach the host, send the requests, compare with the exact answers.

Commands of `lightning` make the requests and the picture, so the testbed needs no code for models.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbed.children import make_child_environment, make_module_command
from lightbed.output_file import write_output
from testbed.errors import HostError, InferenceError
from testbed.measure.results.records import Inference, Latency
from testbed.operate.attach import Attachment, attach

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.lab.model import Lab, LabBoard, LabBoardPort, LabHost
    from testbed.measure.results.run import Run
    from testbed.operate.session import LabSession

ANSWER_TIMEOUT_S = 2.0
"""Time limit for an answer. It is long because a simulated board may wait for a processor of this machine."""
MAX_TRIES = 5
PICTURE_FILE = "request.png"
RESULT_FILE = "inference.json"


@dataclass(frozen=True, slots=True)
class InferenceTrial:
    """A model, its requests as JSON lines, and a PNG picture of one request. A trial is made before the lab starts."""

    model_file: Path
    request_lines: str
    request_count: int
    picture: bytes


def make_lab_with_model(lab: Lab, model: Path) -> Lab:
    """Return a simulated lab with the model as the program of its first board. A real lab is returned unchanged.

    Raises `InferenceError` for a lab without boards, for a file that is not a compiled model, and for a model that is
    not in the program of a real board.
    """
    if model.suffix != ".lng":  # the commands of `lightning` compile other files with different options
        raise InferenceError(
            f"{model} is not a compiled model: make one with `lightning compile MODEL -o FILE.lng`"
        )
    if not lab.boards:
        raise InferenceError(
            f"lab '{lab.name}' has no boards: add `boards` to {lab.path}, or use labs/testbed12-board.yaml"
        )
    board, *other_boards = lab.boards
    if not lab.simulated:
        find_model_number(board, model)
        return lab
    return replace(lab, boards=(replace(board, program=(model.resolve(),)), *other_boards))


def find_model_number(board: LabBoard, model: Path) -> int:
    """Return the number of a model on a board. Raises `InferenceError` if the board's program lacks the model.

    Without `program` in the lab file, the model is taken to be number 0.
    """
    if not board.program:
        return 0
    model_files = [path.resolve() for path in board.program]
    if model.resolve() not in model_files:
        raise InferenceError(
            f"board '{board.name}' runs {', '.join(map(str, board.program))}, not {model}: give one of its models"
        )
    return model_files.index(model.resolve())


def prepare_trial(
    lab: Lab, model: Path, request_count: int, add_note: Callable[[str], None], *, seed: int = 0
) -> InferenceTrial:
    """Make the requests with their expected answers, and the picture of one request.

    The picture needs the tools of the smartNIC's simulator. For a real lab it is optional: a failure is only noted.
    Raises `InferenceError` with the text of `lightning` if the model cannot be read, or if the smartNIC cannot hold it.
    """
    model_number = find_model_number(lab.boards[0], model)
    with tempfile.TemporaryDirectory(prefix="lightbed-") as folder:
        picture_file = Path(folder) / PICTURE_FILE
        try:  # first, because `trace` also checks that the smartNIC can hold the model
            _run_lightning("trace", str(model), "--png", str(picture_file), "--seed", str(seed))
        except InferenceError as error:
            if lab.simulated:
                raise
            add_note(f"no picture of a request: {error}")
        picture = picture_file.read_bytes() if picture_file.exists() else b""
    request_lines = _run_lightning(
        "packets",
        str(model),
        *("--number", str(model_number), "--requests", str(request_count), "--seed", str(seed)),
    )
    return InferenceTrial(model, request_lines, request_count, picture)


def _run_lightning(*arguments: str) -> str:
    """Return the output of a `lightning` command. Raises `InferenceError` with its message if it fails."""
    process = subprocess.run(
        make_module_command("lightning.cli", *arguments),
        capture_output=True,
        text=True,
        check=False,
        env=make_child_environment(),
    )
    if process.returncode:
        error_lines = process.stderr.strip().splitlines() or ["no message"]
        raise InferenceError(f"lightning {arguments[0]}: {error_lines[-1].removeprefix('error: ')}")
    return process.stdout


def measure_inference(
    session: LabSession, run: Run, trial: InferenceTrial, add_note: Callable[[str], None], deadline_s: float
) -> Inference:
    """Attach the first host to the first board (`choose_attachment`), send the requests, and record the result.

    Writes `inference.json` with every latency, and `request.png`, into the run's folder. Raises `HostError` and the
    errors of `attach`.
    """
    lab = session.lab
    if session.fleet is None:
        raise HostError(f"the hosts of lab '{lab.name}' are only modelled and send no packets to a board")
    attachment = choose_attachment(lab)
    host = next(candidate for candidate in lab.hosts if candidate.name == attachment.host)
    attach(session, attachment, add_note)
    port = lab.find_board_port(attachment.board, attachment.port)
    result = send_requests(session.fleet, host, port, trial.request_lines, deadline_s)
    write_output(run.directory / RESULT_FILE, json.dumps(result) + "\n")
    if trial.picture:
        write_output(run.directory / PICTURE_FILE, trial.picture)
    inference = _summarise(trial, attachment, result)
    add_note(
        f"{inference.answered} of {inference.requests} requests answered, {inference.wrong} of them wrongly"
    )
    run.add_inference(inference)
    return inference


def choose_attachment(lab: Lab) -> Attachment:
    """Return the first port of the first board, with the first host's last NIC on the same switch.

    Without such a NIC, take the first host's last NIC.
    """
    board, host = lab.boards[0], lab.hosts[0]
    port = board.ports[0]
    nics_on_switch = [nic for nic in host.nics if nic.transmit.switch == port.receive.switch]
    return Attachment(host.name, (nics_on_switch or host.nics)[-1].name, board.name, port.name)


def send_requests(
    fleet: Fleet, host: LabHost, port: LabBoardPort, request_lines: str, deadline_s: float
) -> dict[str, Any]:
    """Run the client on a host and return its document (see `testbed.node.inference`). Raises `HostError`."""
    program = resources.files("testbed.node").joinpath("inference.py").read_bytes()
    program_path = f"{fleet.put({'inference.py': program}, hosts=[host.name])}/inference.py"
    arguments = [host.python, "-IS", program_path, "--to", f"{port.address}:{port.port}"]
    arguments += [
        "--timeout",
        f"{ANSWER_TIMEOUT_S:g}",
        "--tries",
        str(MAX_TRIES),
        "--deadline",
        f"{deadline_s:g}",
    ]
    command_by_host = {host.name: shlex.join(arguments)}
    command_result = fleet.run(command_by_host, stdin={host.name: request_lines}, timeout_s=deadline_s + 30)[
        host.name
    ]
    if command_result.exit_status:
        error_lines = command_result.stderr.strip().splitlines() or ["no message"]
        raise HostError(f"the inference client failed on {host.name}: {error_lines[-1]}", host=host.name)
    document: dict[str, Any] = json.loads(command_result.stdout)
    return document


def _summarise(trial: InferenceTrial, attachment: Attachment, result: dict[str, Any]) -> Inference:
    return Inference(
        model=str(trial.model_file),
        host=attachment.host,
        board=attachment.board,
        circuits=attachment.labels,
        requests=trial.request_count,
        answered=result["answered"],
        wrong=result["wrong"],
        lost=result["lost"],
        repeated=result["repeated"],
        refused=result["refused"],
        latency_us=summarise_latencies(result["latencies_us"]),
        cycles=statistics.median_low(result["cycles"]) if result["cycles"] else None,
        picture=PICTURE_FILE if trial.picture else "",
        error=result["error"],
    )


def summarise_latencies(latencies_us: Sequence[float]) -> Latency | None:
    """Return the quantiles of latencies, or None for no latencies.

    >>> summarise_latencies([30.0, 10.0, 20.0])
    Latency(min=10.0, median=20.0, p99=30.0, max=30.0)
    """
    if not latencies_us:
        return None
    sorted_us = [round(latency_us, 1) for latency_us in sorted(latencies_us)]
    p99_us = sorted_us[ceil(0.99 * len(sorted_us)) - 1]
    return Latency(sorted_us[0], round(statistics.median(sorted_us), 1), p99_us, sorted_us[-1])
