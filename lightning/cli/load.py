"""`lightning load URL`: load generator with requests at random times, and latency of the answers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import AsJson, Png
from lightning.cli.output import EXIT_ERROR, EXIT_OK, describe_error, list_file_names, print_document
from lightning.load.targets import CONNECTION_COUNT

if TYPE_CHECKING:
    from lightning.load import Outcome
    from lightning.load.targets import Target

Url = Annotated[
    str, typer.Argument(metavar="URL", help="http://HOST:PORT or udp://HOST:PORT; http or udp with --echo.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Model to query: over HTTP a name (default: the only model), in packets a number (default: 1).",
    ),
]
Rates = Annotated[
    list[float] | None,
    typer.Option("--rate", metavar="R", help="Requests per second; repeatable (default: 1000)."),
]
Seconds = Annotated[float, typer.Option("--seconds", metavar="S", help="Duration of the load at each rate.")]
Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="DATA", help="Inputs: random, digits, mnist:DIR, nsl-kdd:DIR, or FILE.npy."
    ),
]
Size = Annotated[int, typer.Option("--size", min=1, help="Number of values in a random input, for packets.")]
Binary = Annotated[bool, typer.Option("--binary", help="Send tensors as bytes instead of JSON.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the times and of the random inputs.")]
Deadline = Annotated[
    int,
    typer.Option(
        "--deadline-us", metavar="US", min=0, help="Answers that take longer count as late; 0: no deadline."
    ),
]
Connections = Annotated[
    int, typer.Option("--connections", min=1, max=1000, help="Number of HTTP connections.")
]
Echo = Annotated[
    bool, typer.Option("--echo", help="Load a local echo server instead, to measure the generator itself.")
]

DEFAULT_RATE = 1000.0

FIRST_MODEL = "1"
"""Number of the first model in packets."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("load")(load)


def load(
    url: Url,
    model: Model = None,
    rate: Rates = None,
    seconds: Seconds = 5.0,
    data: Data = "random",
    size: Size = 784,
    seed: Seed = 0,
    deadline_us: Deadline = 0,
    connections: Connections = CONNECTION_COUNT,
    png: Png = None,
    *,
    binary: Binary = False,
    echo: Echo = False,
    as_json: AsJson = False,
) -> int:
    """Send requests to a server at random times (Poisson); latency counts from the scheduled time.

    For example: lightning load udp://127.0.0.1:8500 --size 784 --rate 5000 --rate 10000 --png latency.png
    """
    from lightning.load.http import find_only_model
    from lightning.load.outcome import describe_failure

    with _open_target(url, echo=echo) as target:
        model = model or (find_only_model(target) if target.scheme == "http" and not echo else FIRST_MODEL)
        load_options: dict[str, Any] = {"data": data, "deadline_us": deadline_us}
        load_options |= (
            {"size": size} if target.scheme == "udp" else {"binary": binary, "connections": connections}
        )
        drive = _make_driver(target, model, load_options, echo=echo)
        outcomes = [
            drive(requests_per_s, seconds, seed=seed + index)
            for index, requests_per_s in enumerate(rate or [DEFAULT_RATE])
        ]
    summary = f"{'echo' if echo else target.url} · model {model} · {seconds:g} s at each rate · seed {seed}"
    if png is not None:
        from lightning.kit.plots import save
        from lightning.load.latency_plot import plot_latencies

        save(plot_latencies(outcomes, summary), png)
    if as_json:
        settings = {"target": target.url, "echo": echo, "model": model, "data": data, "binary": binary}
        return _print_document({**settings, "seed": seed, "seconds": seconds}, outcomes, png)
    _print_outcomes(outcomes, summary, list_file_names((png,)))
    if (failure := describe_failure(outcomes)) is not None:
        raise failure
    return EXIT_OK


def _make_driver(
    target: Target, model: str, load_options: dict[str, Any], *, echo: bool
) -> Callable[..., Outcome]:
    """Return a function that runs a load on the target, by packets or HTTP, and returns its outcome."""
    from lightning.load import drive_datagrams, drive_http
    from lightning.load.http import ECHO_INPUT

    if target.scheme == "udp":
        return partial(drive_datagrams, target, _parse_model_number(model), **load_options)
    return partial(drive_http, target, model, model_input=ECHO_INPUT if echo else None, **load_options)


def _print_document(settings: dict[str, Any], outcomes: list[Outcome], png: Path | None) -> int:
    """Print the document, and return the exit code: an error if no request was answered."""
    from lightning.compiler.compilation import get_toolkit_version
    from lightning.load.outcome import describe_failure

    failure = describe_failure(outcomes)
    results = {"results": [outcome.summarise() for outcome in outcomes], "written": list_file_names((png,))}
    error = {} if failure is None else {"error": describe_error(failure)}
    print_document(
        None, {"version": get_toolkit_version(), **settings, **results, **error}, is_ok=failure is None
    )
    return EXIT_ERROR if failure else EXIT_OK


@contextlib.contextmanager
def _open_target(url: str, *, echo: bool) -> Iterator[Target]:
    from lightning.load.echo import run_echo
    from lightning.load.targets import LoadError, parse_target

    if not echo:
        yield parse_target(url)
        return
    scheme = url.partition(":")[0]
    if scheme not in ("http", "udp"):
        raise LoadError(f"{url!r} has no echo service", hint="Use `lightning load udp --echo`, or http")
    with run_echo(scheme) as target:
        yield target


def _parse_model_number(model: str) -> int:
    from lightning.load.targets import LoadError

    if not model.isdecimal() or int(model) >= 1 << 32:
        raise LoadError(
            f"packets identify models by number, and {model!r} is not a number",
            hint="Pass --model 1; `lightning serve` prints the numbers when it is ready",
        )
    return int(model)


def _print_outcomes(outcomes: Sequence[Outcome], summary: str, file_names: Sequence[str]) -> None:
    print(summary)
    column_titles = (
        "rate/s",
        "answered/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "lost",
        "late",
        "lag p99 µs",
        "refused",
    )
    print("".join(f"{title:>12}" for title in column_titles[:-1]), "", column_titles[-1])
    for outcome in outcomes:
        refusals_text = ", ".join(f"{count:,} {name}" for name, count in outcome.refused.items()) or "0"
        print("".join(f"{_format_cell(value):>12}" for value in _list_values(outcome)), "", refusals_text)
    print("lag: from the scheduled time to sending; the generator was late, or no connection was free")
    for name in file_names:
        print(f"written: {name}")


def _list_values(outcome: Outcome) -> tuple[float, ...]:
    return (
        outcome.rate,
        outcome.answered_per_s,
        *(outcome.compute_percentile_us(percent) for percent in (50, 99, 99.9)),
        outcome.lost,
        outcome.late_count,
        outcome.compute_lag_us(99),
    )


def _format_cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"
