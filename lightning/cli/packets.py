"""`lightning packets MODEL`: requests for clients without the toolkit, each with its expected answer."""

from __future__ import annotations

import json
import struct
from typing import Annotated

import typer

from lightning.cli import noise_options
from lightning.cli.output import EXIT_OK
from lightning.errors import InputError

Number = Annotated[
    int, typer.Option("--number", min=0, max=2**32 - 1, help="Number of the model in packets.")
]
Requests = Annotated[int, typer.Option("--requests", metavar="N", min=1, help="Number of requests.")]
Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="DATA", help="Inputs: random, digits, mnist:DIR, nsl-kdd:DIR, or FILE.npy."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("packets")(packets)


def packets(
    model: noise_options.Model,
    number: Number = 0,
    requests: Requests = 100,
    data: Data = "random",
    seed: Seed = 0,
) -> int:
    """Print request packets for a model with the exact answers, a JSON line each.

    `answer` is the class, the number of scores, and the scores, as in the message of an answer, but without cycles.
    For example: lightning packets lenet.lng --requests 1000 > requests.jsonl
    """
    import numpy as np

    from lightning.compiler.compilation import load_or_compile
    from lightning.execution import open_executor
    from lightning.execution.interface import find_classes, get_raw_shape
    from lightning.load.inputs import make_rows
    from lightning.serving.packets.codec import Kind, Packet, serialise

    compiled_model = load_or_compile(model)
    rows = make_rows(data, get_raw_shape(compiled_model.network), seed)
    if rows.dtype != np.uint8:
        raise InputError(f"{data} holds {rows.dtype}, not bytes", hint="Give data of uint8, such as images")
    request_inputs = rows[np.arange(requests) % len(rows)]
    scores = open_executor(compiled_model, "exact").run(request_inputs).scores.reshape(requests, -1)
    for request_number, (request_input, request_scores, class_index) in enumerate(
        zip(request_inputs, scores, find_classes(scores), strict=True)
    ):
        datagram = serialise(Packet(Kind.REQUEST, number, request_number, request_input.tobytes()))
        answer = (
            struct.pack(">II", int(class_index), request_scores.size) + request_scores.astype(">f4").tobytes()
        )
        print(json.dumps({"number": request_number, "request": datagram.hex(), "answer": answer.hex()}))
    return EXIT_OK
