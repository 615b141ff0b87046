"""`testbed serve`: the service that several people share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import options
from testbed.cli.output import DONE, print_answer

Labs = Annotated[
    list[Path], typer.Option("--lab", metavar="LAB", help="Lab file of a lab that is shared (repeatable).")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    labs: Labs,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Certificate (PEM): HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key (PEM).")] = None,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Also looking takes a token; always so beyond loopback.")
    ] = False,
    oidc: Annotated[
        str,
        typer.Option("--oidc", metavar="ISSUER", help="OpenID Connect provider whose people may ask, too."),
    ] = "",
    oidc_audience: Annotated[
        str, typer.Option("--oidc-audience", metavar="NAME", help="Audience that its tokens must be for.")
    ] = "lightbed",
    oidc_claim: Annotated[
        str, typer.Option("--oidc-claim", metavar="NAME", help="Claim of its tokens that names roles.")
    ] = "roles",
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Share labs over HTTP: runs, leases, events, with roles and an audit log. Runs until it is stopped."""
    from testbed.service.oidc import Provider, either
    from testbed.service.server import Listener, make_service, this_url
    from testbed.service.server import serve as serve_labs

    provider = Provider(oidc, oidc_audience, claim=oidc_claim) if oidc else None
    listener = Listener(host, port, tls_certificate, tls_key)
    listener.check()
    service = make_service(labs, runs_dir, is_open=listener.is_local and not require_token)

    def ready(url: str) -> None:
        names = ", ".join(view.lab.name for view in service.labs)
        print_answer(this_url(url), [f"{names} at {url}; Ctrl-C ends the service"], as_json=as_json)
        sys.stdout.flush()

    serve_labs(service, listener, ready, either(service.tokens.identity, provider))
    return DONE
