"""Tokens of an OpenID Connect provider: of one of our own, with keys made here."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from libraries import skip_without
from needs import needs

skip_without("cryptography")
skip_without("fastapi")
skip_without("httpx")

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from testbed.service.oidc import Provider, make_identifier
from testbed.service_errors import InvalidRequest, NotAllowed, NotAuthenticated

NOW = 1_800_000_000.0


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int) -> str:
    return b64(value.to_bytes(size))


class Issuer:
    """A provider: its keys, its documents, and tokens."""

    def __init__(self, url: str = "https://idp.example") -> None:
        self.url, self.asked = url, []
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def document(self, url: str):
        self.asked.append(url)
        if url.endswith("/.well-known/openid-configuration"):
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        numbers, point = self.rsa.public_key().public_numbers(), self.ec.public_key().public_numbers()
        return {
            "keys": [
                {
                    "kid": "r",
                    "kty": "RSA",
                    "use": "sig",
                    "n": number(numbers.n, 256),
                    "e": number(numbers.e, 3),
                },
                {"kid": "e", "kty": "EC", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)},
                {
                    "kid": "enc",
                    "kty": "RSA",
                    "use": "enc",
                    "n": number(numbers.n, 256),
                    "e": number(numbers.e, 3),
                },
            ]
        }

    def token(self, kid="r", alg=None, **claims) -> str:
        header = {"kid": kid, "alg": alg or {"r": "RS256", "e": "ES256"}.get(kid, "RS256")}
        told = {"iss": self.url, "aud": "lab", "sub": "ann", "exp": NOW + 600, "roles": ["operator"]} | claims
        signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(told).encode())}"
        if kid == "e":
            r, s = decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(SHA256())))
            signature = r.to_bytes(32) + s.to_bytes(32)
        else:
            signature = self.rsa.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{b64(signature)}"


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


@pytest.fixture
def provider(issuer):
    return Provider(issuer.url, "lab", fetch_document=issuer.document, get_time_s=lambda: NOW)


@pytest.mark.parametrize("kid", ["r", "e"])
def test_a_signed_token_says_who_and_which_role(issuer, provider, kid):
    who = provider.identify(issuer.token(kid, roles=["operator", "viewer", "else"], aud=["other", "lab"]))

    assert (who.name, who.role) == ("ann@idp.example", "operator")


def test_a_person_is_issuer_and_subject_not_the_name_that_anybody_may_choose(issuer, provider):
    owner, thief = (
        provider.identify(issuer.token(sub=sub, preferred_username="ann")) for sub in ("1111", "9999")
    )
    elsewhere = Issuer("https://other.example/realm/")
    other = Provider(elsewhere.url, "lab", fetch_document=elsewhere.document, get_time_s=lambda: NOW)
    assert (owner.name, thief.name) == ("1111@idp.example", "9999@idp.example")
    assert other.identify(elsewhere.token(sub="1111")).name == "1111@other.example/realm"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": 5},
        {"aud": {"lab": 1}},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": [NOW + 600]},
        {"nbf": "soon"},
        {"sub": 1111},
        {"sub": ["ann"]},
        {"sub": "ann\n7 2026-11-28 root (admin) stop on testbed12, accepted"},
        {"sub": "a" * 256},
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"aud": []},
        {"exp": NOW - 60},
        {"exp": None},
        {"exp": True},
        {"nbf": NOW + 600},
        {"sub": ""},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_us_is_refused(issuer, provider, claims):
    with pytest.raises(NotAuthenticated):
        provider.identify(issuer.token(**claims))


def test_somebody_without_a_role_may_nothing(issuer, provider):
    with pytest.raises(NotAllowed, match="roles"):
        provider.identify(issuer.token(roles=["students"]))


def forged(issuer):
    head, body, tail = issuer.token().split(".")
    none = b64(json.dumps({"alg": "none", "kid": "r"}).encode())
    hmac = b64(json.dumps({"alg": "HS256", "kid": "r"}).encode())
    admin = b64(
        json.dumps({"iss": issuer.url, "aud": "lab", "sub": "x", "exp": NOW + 9, "roles": "admin"}).encode()
    )
    yield from (f"{none}.{body}.", f"{hmac}.{body}.{tail}", f"{head}.{admin}.{tail}", f"{head}.{body}.AAAA")
    yield from (issuer.token("enc"), issuer.token("unknown"), issuer.token("e", alg="RS256"), "a.b.c", "..")
    yield Issuer().token()


def test_a_token_that_no_key_of_the_provider_made_is_refused(issuer, provider):
    tokens = list(forged(issuer))
    assert len(tokens) == 10
    for token in tokens:
        with pytest.raises(NotAuthenticated):
            provider.identify(token)


@pytest.mark.parametrize(
    "keys", [[], {}, {"keys": 5}, {"keys": ["r"]}, {"keys": [{"kid": "r", "kty": "RSA", "n": 5, "e": 5}]}]
)
def test_documents_of_a_provider_that_are_none_let_nobody_in(issuer, keys):
    def document(url):
        return keys if url.endswith("/keys") else {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}

    for fetch in (document, lambda _url: keys):
        with pytest.raises(NotAuthenticated):
            Provider(issuer.url, "lab", fetch_document=fetch, get_time_s=lambda: NOW).identify(issuer.token())


def test_unknown_keys_do_not_make_us_ask_each_time(issuer):
    issuer.asked.clear()
    provider = Provider(issuer.url, "lab", fetch_document=issuer.document, get_time_s=lambda: NOW)
    for _ in range(20):
        with pytest.raises(NotAuthenticated):
            provider.identify(issuer.token("unknown"))

    assert len(issuer.asked) == 2


def test_an_issuer_must_be_reached_safely():
    with pytest.raises(InvalidRequest, match="https"):
        Provider("http://idp.example", "lab")


@pytest.fixture
@needs("socket")
def listening():
    """Provide a provider that listens on this machine."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(issuer.document(self.path)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()


def test_people_of_a_provider_and_our_tokens_are_both_known(listening, service, token_of):
    provider = Provider(listening.url, "lab", get_time_s=lambda: NOW)
    identify = make_identifier(service.tokens.identify, provider)

    assert identify(listening.token(roles="developer")).role == "developer"
    assert identify(token_of("viewer")).role == "viewer"
    with pytest.raises(NotAuthenticated):
        make_identifier(service.tokens.identify, None)(listening.token())


@pytest.mark.socket
def test_a_provider_that_is_away_lets_nobody_in():
    provider = Provider("http://127.0.0.1:9", "lab")
    with pytest.raises(NotAuthenticated, match="does not answer"):
        provider.identify(Issuer("http://127.0.0.1:9").token())
