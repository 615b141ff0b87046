"""`testbed serve`: share labs over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.output import print_answer, print_note
from testbed.cli.parameters import AS_JSON, DATABASE, RUNS_DIR
from testbed.commands.context import DEFAULT_RUNS
from testbed.commands.documents import EXIT_DONE

Labs = Annotated[
    list[Path], typer.Option("--lab", metavar="LAB", help="Lab file of a lab to share (repeatable).")
]


Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free port.")]
Certificate = Annotated[
    Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Certificate (PEM) for HTTPS.")
]
Key = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the certificate (PEM).")]
RequireToken = Annotated[
    bool, typer.Option("--require-token", help="Require a token for reads too. Always on beyond loopback.")
]
Issuer = Annotated[
    str, typer.Option("--oidc", metavar="ISSUER", help="OpenID Connect provider whose users get access too.")
]
Audience = Annotated[
    str,
    typer.Option("--oidc-audience", metavar="NAME", help="Audience that tokens of the provider must name."),
]
Claim = Annotated[
    str,
    typer.Option("--oidc-claim", metavar="NAME", help="Claim in tokens of the provider that names roles."),
]
MostQueued = Annotated[
    int,
    typer.Option("--most-queued", metavar="N", min=1, help="Maximum number of waiting runs per user."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    labs: Labs,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    require_token: RequireToken = False,
    oidc: Issuer = "",
    oidc_audience: Audience = "lightbed",
    oidc_claim: Claim = "roles",
    most_queued: MostQueued = 8,
    runs_dir: RUNS_DIR = DEFAULT_RUNS,
    as_json: AS_JSON = False,
    database: DATABASE = "",  # noqa: ARG001  its callback stores it
) -> int:
    """Share labs over HTTP: runs, leases, events, with roles and an audit log. Runs until stopped."""
    from testbed.service.oidc import Provider, make_identifier
    from testbed.service.server import Listener, describe_server, make_service
    from testbed.service.server import serve as serve_labs

    provider = Provider(oidc, oidc_audience, role_claim=oidc_claim) if oidc else None
    listener = Listener(host, port, tls_certificate, tls_key)
    listener.check()
    if tls_certificate is None and not listener.is_local:
        print_note(
            f"warning: {host} is reachable from other machines, and tokens are sent unencrypted; "
            "pass --tls-certificate and --tls-key, or listen on 127.0.0.1 behind a TLS proxy"
        )
    service = make_service(
        labs, runs_dir, is_open=listener.is_local and not require_token, max_queued_runs=most_queued
    )

    def ready(url: str) -> None:
        lab_names = ", ".join(view.lab.name for view in service.labs)
        print_answer(
            describe_server(url), [f"serving {lab_names} at {url}; Ctrl-C ends the service"], as_json=as_json
        )
        sys.stdout.flush()

    serve_labs(service, listener, ready, make_identifier(service.tokens.identify, provider))
    return EXIT_DONE
