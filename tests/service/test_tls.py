"""A service with a certificate: clients speak TLS to it, and believe nobody else."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs
from service_process import Process

skip_without("cryptography")
skip_without("fastapi")
skip_without("httpx")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from testbed.cli.app import run_app
from testbed.client import ServiceUnreachable, connect

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"


class Authority:
    """A certificate authority of a test."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self.key, name, x509.BasicConstraints(ca=True, path_length=0))
        self.file = self._write(f"{name}.pem", self.certificate.public_bytes(Encoding.PEM))

    def issue(self) -> tuple[Path, Path]:
        """Return the files of a certificate for this machine's loopback address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._sign(key, "service", names)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return self._write("service.pem", made.public_bytes(Encoding.PEM)), self._write("key.pem", text)

    def _sign(self, key, name, extension):
        now = datetime.now(UTC)
        issuer, subject = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)]) for one in (self.name, name)
        )
        made = (
            x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key.public_key())
        )
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
        made = made.not_valid_after(now + timedelta(hours=1)).add_extension(extension, critical=False)
        made = made.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        ).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        return made.sign(self.key, hashes.SHA256())

    def _write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
@needs("process", "socket")
def secured(authority, tmp_path_factory):
    """Start a service with a certificate of this authority; its lab is down."""
    certificate, key = authority.issue()
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    process = Process(LAB, tmp_path_factory.mktemp("service") / "runs", options=options)
    process.start()
    yield process
    assert process.end() == 0


@pytest.mark.long
def test_a_client_speaks_tls(secured, authority):
    context = ssl.create_default_context(cafile=authority.file)
    assert secured.url.startswith("https://127.0.0.1:")
    with connect(secured.url, secured.token("viewer"), verify=context) as client:
        assert [lab["name"] for lab in client.list_labs()] == ["testbed12"]

    address = ("127.0.0.1", int(secured.url.rpartition(":")[2]))
    with (
        socket.create_connection(address, timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
        assert wrapped.getpeercert()["subject"] == ((("commonName", "service"),),)


def test_a_certificate_of_somebody_else_is_refused(secured, tmp_path):
    wrong = ssl.create_default_context(cafile=Authority(tmp_path, "theirs").file)
    for verify in (wrong, True):
        with (
            connect(secured.url, "token", verify=verify) as client,
            pytest.raises(ServiceUnreachable, match="certificate verify failed"),
        ):
            client.list_labs()


def test_a_client_without_tls_gets_nothing(secured):
    with connect(secured.url.replace("https", "http"), "token") as client, pytest.raises(ServiceUnreachable):
        client.list_labs()


@pytest.mark.long
def test_the_command_line_takes_the_authority_of_the_environment(secured, authority, monkeypatch, capsys):
    words = ["lease", "list", "testbed12", "--json", "--server", secured.url]
    monkeypatch.setenv("LIGHTBED_TOKEN", secured.token("viewer"))
    assert run_app(words) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "service.unreachable"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

    assert run_app(words) == 0
    assert json.loads(capsys.readouterr().out)["leases"] == []


def test_beyond_this_machine_without_a_certificate_the_command_warns(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("testbed.service.server.serve", lambda *_arguments: None)
    command = ["serve", "--lab", str(LAB), "--runs-dir", str(tmp_path), "--port", "0"]
    assert run_app([*command, "--host", "127.0.0.1"]) == 0
    assert capsys.readouterr().err == ""
    assert run_app([*command, "--host", "0.0.0.0"]) == 0
    assert "tokens are sent unencrypted" in capsys.readouterr().err
