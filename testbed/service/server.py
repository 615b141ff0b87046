"""The process of the service: its labs, database and listener. SIGTERM ends it, but running runs continue."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop

from lightbed.http_server import HeadAsGet, Server
from testbed.errors import LabFileError
from testbed.lab.inventory import load_lab
from testbed.service.application import build_app
from testbed.service.context import Service, TokenAuthority
from testbed.service.events import EventLog, Feed
from testbed.service.gate import Gate, Identify
from testbed.service.labs import LabView
from testbed.service.runs import MAX_QUEUED_RUNS, RunStore
from testbed.service.workers import Workers, start_process
from testbed.service_errors import InvalidRequest
from testbed.storage.address import get_database_address, is_server
from testbed.storage.database import Database


@dataclass(frozen=True, slots=True)
class Listener:
    """Address and certificate of a service. Without a certificate it uses plain HTTP."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raise `InvalidRequest` for a certificate without its key."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequest("TLS needs both --tls-certificate and --tls-key")


def make_service(
    lab_files: Sequence[Path], runs_dir: Path, *, is_open: bool = True, max_queued_runs: int = MAX_QUEUED_RUNS
) -> Service:
    """Return a service for these labs. Raises `StorageError`, and `LabFileError`, also for two labs of one name."""
    labs = [load_lab(path) for path in lab_files]
    lab_names = [lab.name for lab in labs]
    for name in lab_names:
        if lab_names.count(name) > 1:
            raise LabFileError(f"two lab files describe lab '{name}': give each lab its own name")
    runs_dir = runs_dir.absolute()
    address = get_database_address(runs_dir)
    database = Database(address)
    database.prepare()
    store = RunStore(database, max_queued_runs)
    path_by_lab = {lab.name: lab.path.absolute() for lab in labs}
    url = str(address) if is_server(address) else ""
    workers = Workers(store, (*lab_names, ""), lambda run: start_process(run, path_by_lab, runs_dir, url))
    views = tuple(LabView(lab, runs_dir, address, store) for lab in labs)
    feed = Feed(EventLog(database))
    return Service(database, runs_dir, views, store, TokenAuthority(database), workers, feed, is_open)


def serve(
    service: Service, listener: Listener, on_ready: Callable[[str], None], identify: Identify | None = None
) -> None:
    """Answer requests until SIGTERM or SIGINT. Call `on_ready` with the URL once the service listens."""
    listener.check()
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    with socket.create_server((listener.host, listener.port), family=family) as listening_socket:
        config = uvicorn.Config(
            HeadAsGet(Gate(build_app(service), service, identify or service.tokens.identify)),
            access_log=False,
            log_level="warning",
            server_header=False,
            ws="none",
            ssl_certfile=listener.certificate,
            ssl_keyfile=listener.key,
            timeout_graceful_shutdown=2,
        )
        scheme = "https" if listener.certificate else "http"
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        url = f"{scheme}://{host}:{listening_socket.getsockname()[1]}"
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Server(config, lambda: on_ready(url)).serve(sockets=[listening_socket]))
    service.database.close()


class _Server(Server):
    """A server whose process exits with status 0 after a signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server, without raising the signal again as uvicorn does. A second signal stops it immediately."""
        self.force_exit = self.should_exit
        self.should_exit = True


def describe_server(url: str) -> dict[str, object]:
    """Return the document that a service prints when it is ready."""
    return {"url": url, "pid": os.getpid()}
