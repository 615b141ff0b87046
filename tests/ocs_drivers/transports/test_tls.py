"""HTTPS: whom we believe, and that TLS's own messages are not taken for the device's."""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ocs_drivers.address import parse_address
from ocs_drivers.errors import AddressError, ConnectError, ConnectionLost, Timeout
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.lines import make_http_line
from ocs_drivers.transports.tls import TlsTransport
from ocs_drivers.transports.transport import SocketTransport


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """Make a certificate as a switch makes one for itself, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "switch")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "switch.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths


class TlsEcho:
    """Echoes what it hears, until it hears `bye`."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            try:
                with raw, self._context.wrap_socket(raw, server_side=True) as connection:
                    connection.settimeout(10)
                    while (data := connection.recv(65536)) and data != b"bye":
                        if data != b"hush":
                            connection.sendall(data)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


@pytest.fixture
@needs("socket")
def echo(certificate) -> Iterator[TlsEcho]:
    made = TlsEcho(certificate)
    yield made
    made.close()


def test_a_certificate_of_the_named_authority_is_believed(echo, certificate):
    line = TlsTransport("127.0.0.1", echo.port, device="d", ca=str(certificate[0]))
    line.open(5)
    for sent in (b"one", b"two", b"x" * 100_000):
        assert not line.has_input()  # session tickets are TLS's own affair
        line.send(sent, Deadline(5))
        received = b""
        while len(received) < len(sent):
            received += line.receive(Deadline(5))
        assert received == sent
    line.close()
    assert not line.is_open


def test_a_certificate_of_nobody_is_refused_with_the_two_ways_out(echo):
    with pytest.raises(ConnectError, match=r"not trusted.*\?ca=FILE.*\?insecure=1"):
        TlsTransport("127.0.0.1", echo.port, device="d").open(5)


def test_insecure_accepts_any_and_says_so(echo, caplog):
    line = TlsTransport("127.0.0.1", echo.port, device="calient+rest://h", insecure=True)
    with caplog.at_level(logging.WARNING):
        line.open(5)
    assert [record.getMessage() for record in caplog.records] == [
        "calient+rest://h: the certificate is not verified (insecure=1)"
    ]
    line.close()


def test_a_disconnect_is_distinguished_from_silence(echo, certificate):
    line = TlsTransport("127.0.0.1", echo.port, device="d", ca=str(certificate[0]))
    line.open(5)
    line.send(b"hush", Deadline(5))
    with pytest.raises(Timeout):
        line.receive(Deadline(0.05))
    line.send(b"bye", Deadline(5))
    with pytest.raises(ConnectionLost):
        line.receive(Deadline(5))
    line.close()
    with pytest.raises(ConnectionLost, match="it is closed"):
        line.has_input()


def test_what_has_input_saw_is_not_lost(echo, certificate):
    line = TlsTransport("127.0.0.1", echo.port, device="d", ca=str(certificate[0]))
    line.open(5)
    line.send(b"hello", Deadline(5))
    until = Deadline(5)
    while not line.has_input():
        assert not until.is_over
    assert line.has_input()
    assert line.receive(Deadline(0)) == b"hello"
    line.close()


@pytest.mark.socket
def test_a_server_without_tls_is_no_such_device(peer):
    served = peer(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(ConnectError, match="no TLS"):
        TlsTransport("127.0.0.1", served.port, device="d", insecure=True).open(5)


def test_an_authority_file_that_is_not_there_is_named():
    with pytest.raises(ConnectError, match="No such file"):
        TlsTransport("127.0.0.1", 1, device="d", ca="/nowhere.pem").open(1)


def test_the_address_decides_between_tls_and_plain():
    plain = make_http_line(parse_address("x+rest://h"), port=80, tls_port=443)
    wrapped = make_http_line(parse_address("x+rest://h?tls=1"), port=80, tls_port=443)
    assert (type(plain), type(wrapped)) == (SocketTransport, TlsTransport)
    with pytest.raises(AddressError, match="tls must be 0 or 1"):
        make_http_line(parse_address("x+rest://h?tls=yes"), port=80, tls_port=443)
