"""`lightning serve MODEL ...`: a server that runs models on requests over HTTP and UDP."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options
from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_OK
from lightning.errors import ConfigError

if TYPE_CHECKING:
    from lightning.evaluation.result import Provenance
    from lightning.serving.nic import NicAddress, NicModelFile

Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL...", help="Files (.lng, .npz, .onnx), or a directory of .lng files."),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="HTTP port; 0 selects a free port.")]
Udp = Annotated[
    int | None,
    typer.Option("--udp", metavar="PORT", min=0, max=65535, help="Also serve UDP packets on this port."),
]
Realtime = Annotated[
    bool, typer.Option("--realtime", help="Run packets with real-time priority; needs privileges.")
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="Name of the model, if there is only one; default: the name of its file."),
]
MaxBody = Annotated[
    int, typer.Option("--max-body", metavar="MIB", min=1, help="Maximum size of a request body.")
]
Nic = Annotated[
    str | None,
    typer.Option(
        "--nic",
        metavar="ADDRESS",
        help="Serve on a simulated smartNIC behind a TAP device, e.g. verilator://nic0?address=10.77.0.2/24.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Network namespace of the TAP device.")
]

LIBRARIES = ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "prometheus_client")
"""Required libraries. They are checked before any model is loaded."""

NIC_INVALID_OPTIONS = (
    "host", "port", "udp", "realtime", "max_body", "noise", "sigma", "mean", "average", "device", "bus", "calibrated",
)  # fmt: skip
"""Options that are invalid with --nic."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    context: typer.Context,
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    udp: Udp = None,
    name: Name = None,
    fidelity: noise_options.FidelityName = None,
    noise: noise_options.NoisePlace = None,
    sigma: noise_options.Sigma = None,
    mean: noise_options.Mean = None,
    average: noise_options.Average = 1,
    seed: noise_options.Seed = 0,
    device: noise_options.MaybeDevice = None,
    bus: noise_options.Bus = None,
    max_body: MaxBody = 64,
    nic: Nic = None,
    namespace: Namespace = None,
    *,
    realtime: Realtime = False,
    calibrated: noise_options.Calibrated = False,
    as_json: AsJson = False,
) -> int:
    """Serve models over the network until SIGINT or SIGTERM: Open Inference Protocol over HTTP, and UDP.

    For example: lightning serve lenet.lng --fidelity noisy --udp 8500
    """
    if nic is not None:
        _refuse_options(context)
        return _serve_on_nic(map_files_by_name(models, name), nic, namespace, fidelity, seed, as_json=as_json)
    if namespace is not None:
        raise ConfigError("a namespace is given, but no smartNIC", hint="Add --nic, or leave --namespace out")
    if realtime and udp is None:
        raise ConfigError("--realtime applies to packets, but no UDP port is open", hint="Add --udp PORT")
    run = noise_options.choose_run(fidelity, noise, sigma, mean, average, device, bus, calibrated=calibrated)
    from lightning.optional import require

    # The server is imported below, after this check of its libraries.
    for library in LIBRARIES:
        require(library, "to serve models")
    model_files = map_files_by_name(models, name)
    from lightning.serving import server
    from lightning.serving.http.fast_path import MEBIBYTE, Infer, Limits
    from lightning.serving.repository import Repository

    directory = next((path for path in models if path.is_dir()), None)
    repository = Repository(
        lambda model: run.open(model, seed),
        directory,
        lambda model: _describe_origin(run.make_provenance(model, (seed,))),
    )
    limits = Limits(
        max_body_bytes=max_body * MEBIBYTE, max_total_body_bytes=max(512, 8 * max_body) * MEBIBYTE
    )
    report_ready = partial(_print_ready, seed=seed, as_json=as_json)
    with contextlib.closing(repository), contextlib.closing(server.bind_socket(host, port)) as server_socket:
        _warn_if_reachable(host)
        for model_name, path in model_files.items():
            repository.load(model_name, path)
        server.serve(Infer(repository, limits), server_socket, udp, report_ready, realtime=realtime)
    return EXIT_OK


def _refuse_options(context: typer.Context) -> None:
    """Raise `ConfigError` for a given option that is invalid with --nic."""
    for name in NIC_INVALID_OPTIONS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is given, but a smartNIC serves neither HTTP nor packets in software",
                hint=f"Leave {option} out; the keys of --nic set address, port and optics",
            )


def _serve_on_nic(
    files: Mapping[str, Path],
    address: str,
    namespace: str | None,
    fidelity: str | None,
    seed: int,
    *,
    as_json: bool,
) -> int:
    """Serve models on a simulated smartNIC until SIGINT or SIGTERM, and print its counters."""
    from lightning.serving.nic import (
        interrupt_on_sigterm,
        load_program,
        make_nic,
        parse_address,
        serve_nic,
        stop_on_signals,
    )

    nic_address = parse_address(address, seed)
    has_noise = _has_noise(fidelity, nic_address.noise)
    program, models = load_program(files)
    report_ready = partial(_print_nic_ready, nic_address, models, as_json=as_json)
    with interrupt_on_sigterm():
        nic = make_nic(program, nic_address, noise=has_noise)
    with contextlib.closing(nic), stop_on_signals() as stop_event:
        counters = serve_nic(nic, nic_address, namespace, report_ready, stop_event)
    if as_json:
        print(json.dumps({"counters": counters}), flush=True)
    else:
        print("counters: " + ", ".join(f"{name} {count}" for name, count in counters.items()), flush=True)
    return EXIT_OK


def _has_noise(fidelity: str | None, has_address_noise: bool | None) -> bool:
    """Return whether the optics have noise, by fidelity or address. Raise `ConfigError` if they contradict."""
    if fidelity is None:
        return bool(has_address_noise)
    if fidelity not in ("exact", "noisy"):
        raise ConfigError(
            f"fidelity {fidelity} is given, but a simulated smartNIC is exact or noisy",
            hint="Choose one of them, or leave --fidelity out",
        )
    if has_address_noise is not None and has_address_noise != (fidelity == "noisy"):
        raise ConfigError(
            f"fidelity {fidelity} contradicts noise={int(has_address_noise)} of the smartNIC",
            hint="Leave one of them out",
        )
    return fidelity == "noisy"


def _print_nic_ready(nic_address: NicAddress, models: Sequence[NicModelFile], *, as_json: bool) -> None:
    """Print that the smartNIC is ready, with its models and addresses."""
    if as_json:
        document = {
            "interface": nic_address.interface,
            "address": str(nic_address.address.ip),
            "mac": nic_address.mac,
            "port": nic_address.port,
            "models": [model.document for model in models],
        }
        state = {
            "ready": True,
            "nic": document,
            "seed": nic_address.seed,
            "pid": os.getpid(),
            "simulated": True,
        }
        print(json.dumps(state), flush=True)
        return
    models_text = ", ".join(f"{model.name} (number {model.number})" for model in models)
    print(f"ready: {models_text} at {nic_address}  SIMULATED", flush=True)


def map_files_by_name(paths: Sequence[Path], name: str | None = None) -> dict[str, Path]:
    """Return the files by model name. Raise `ConfigError` for a name that occurs twice."""
    model_files: dict[str, Path] = {}
    for path in paths:
        for file in _list_model_files(path):
            model_name = name or file.stem
            if model_name in model_files:
                raise ConfigError(
                    f"{str(model_files[model_name])!r} and {str(file)!r} would both be model {model_name!r}",
                    hint="Rename one of them; --name is for a single file",
                )
            model_files[model_name] = file
    return model_files


def _list_model_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.lng"))
    if not files:
        raise ConfigError(
            f"{str(path)!r} contains no .lng file", hint="Create one with `lightning compile -o NAME.lng`"
        )
    return files


def _describe_origin(provenance: Provenance) -> dict[str, Any]:
    """Return the part of the provenance that clients receive with every model."""
    return {
        key: provenance.document[key]
        for key in ("version", "seed", "noise", "calibration", "device", "simulated")
    }


def _warn_if_reachable(host: str) -> None:
    """Print a warning if the server is reachable from other machines. Host names are resolved."""
    with contextlib.suppress(OSError):
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
        if not all(ip_address(address.partition("%")[0]).is_loopback for address in addresses):
            print(
                (
                    f"warning: {host} is reachable from other machines, and there is no password: anyone who "
                    "reaches it can run, load and unload models"
                ),
                file=sys.stderr,
            )


def _print_ready(state: dict[str, Any], *, seed: int = 0, as_json: bool) -> None:
    """Print that the server is ready, with its models and addresses."""
    if as_json:
        print(json.dumps({"ready": True, **state, "seed": seed, "pid": os.getpid()}), flush=True)
        return
    models_text = ", ".join(
        f"{model['name']} ({_describe_model(model, state['udp'])})" for model in state["models"]
    )
    udp_text = f" and udp://{state['udp']}" if state["udp"] else ""
    print(f"ready: {models_text} at {state['http']}{udp_text}", flush=True)


def _describe_model(model: dict[str, Any], udp_address: str | None) -> str:
    """Return a model's fidelity, and its number in packets if the server takes packets."""
    return f"{model['fidelity']}, number {model['number']}" if udp_address else str(model["fidelity"])
