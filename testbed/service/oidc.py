"""Authentication with tokens (JWT) of an OpenID Connect provider, checked with the provider's published keys.

The provider needs a discovery document. Signatures are RS256 or ES256. Tokens are refused if they have no valid
signature of the provider (also `alg: none`), come from another issuer, are for another audience, or have expired.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from testbed.commands.declare import Role
from testbed.service.access import ROLES, Identity
from testbed.service_errors import InvalidRequest, NotAllowed, NotAuthenticated

CLOCK_LEEWAY_S = 30.0
MIN_FETCH_INTERVAL_S = 30.0
"""Minimum time between two fetches of the keys, so that tokens with unknown keys do not flood the provider."""
_SUBJECT_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")
"""A subject of OpenID Connect: at most 255 ASCII characters. It identifies a person only together with the issuer."""
FetchJson = Callable[[str], Any]


def fetch_json(url: str) -> Any:
    """Return the JSON document at a URL. Raises `NotAuthenticated` if the provider does not answer."""
    import httpx

    try:
        return httpx.get(url, timeout=10.0, follow_redirects=False).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise NotAuthenticated(
            f"the OpenID provider does not answer ({url}: {error}); use a token for now"
        ) from error


class Provider:
    """An OpenID Connect provider. A claim of its tokens names roles; the identity gets the highest role."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        role_claim: str = "roles",
        fetch_document: FetchJson = fetch_json,
        get_time_s: Callable[[], float] = time.time,
    ) -> None:
        url = urlsplit(issuer)
        if url.scheme != "https" and url.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InvalidRequest(
                f"the issuer {issuer!r} must be an https:// address, because its keys decide who has access"
            )
        self._issuer, self._audience, self._role_claim = issuer, audience, role_claim
        self._fetch_document, self._get_time_s = fetch_document, get_time_s
        self._key_by_kid: dict[str, Mapping[str, Any]] = {}
        self._fetch_time_s, self._lock = -1e18, Lock()

    def identify(self, text: str) -> Identity:
        """Return the identity of a token. Raises `NotAuthenticated`, and `NotAllowed` for a person without a role."""
        header, claims, signed_bytes, signature = _split_token(text)
        key = self._find_key(str(header.get("kid", "")))
        _check_signature(key, str(header.get("alg", "")), signed_bytes, signature)
        self._check_claims(claims)
        name = f"{claims['sub']}@{self._issuer.partition('://')[2].rstrip('/')}"
        claimed_roles = _read_texts(claims.get(self._role_claim))
        roles: list[Role] = [role for role in ROLES if role in claimed_roles]
        if not roles:
            raise NotAllowed(
                f"{name} has no role here: the claim {self._role_claim!r} contains none of {', '.join(ROLES)}"
            )
        return Identity(name, roles[-1])

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        subject, now_s = claims.get("sub"), self._get_time_s()
        reason = ""
        if claims.get("iss") != self._issuer:
            reason = "is of another issuer"
        elif self._audience not in _read_texts(claims.get("aud")):
            reason = "is for another audience"
        elif not _is_number(claims.get("exp")) or claims["exp"] + CLOCK_LEEWAY_S <= now_s:
            reason = "expired"
        elif claims.get("nbf") is not None and not (
            _is_number(claims["nbf"]) and claims["nbf"] - CLOCK_LEEWAY_S <= now_s
        ):
            reason = "is not valid yet"
        elif not isinstance(subject, str) or not _SUBJECT_PATTERN.fullmatch(subject):
            reason = "names nobody"
        if reason:
            raise NotAuthenticated(f"this token of the OpenID provider {reason}; log in again")

    def _find_key(self, kid: str) -> Mapping[str, Any]:
        """Return the provider's key `kid`. Fetch the keys again if `kid` is unknown. Raises `NotAuthenticated`."""
        with self._lock:
            if kid not in self._key_by_kid and self._get_time_s() - self._fetch_time_s > MIN_FETCH_INTERVAL_S:
                self._fetch_time_s = self._get_time_s()
                self._key_by_kid = self._fetch_keys()
            key = self._key_by_kid.get(kid)
        if key is None:
            raise NotAuthenticated("this token is not signed by a key of the OpenID provider; log in again")
        return key

    def _fetch_keys(self) -> dict[str, Mapping[str, Any]]:
        document = self._fetch_document(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            raise NotAuthenticated(f"the discovery document of {self._issuer} belongs to another issuer")
        try:
            keys = self._fetch_document(str(document["jwks_uri"]))["keys"]
            return {str(key.get("kid", "")): key for key in keys if key.get("use", "sig") == "sig"}
        except (AttributeError, KeyError, TypeError) as error:
            raise NotAuthenticated(f"the documents of {self._issuer} contain no keys") from error


def _split_token(text: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return header, claims, the signed bytes, and the signature. Raises `NotAuthenticated`."""
    try:
        header_text, claims_text, signature_text = text.split(".")
        header, claims = json.loads(_decode_bytes(header_text)), json.loads(_decode_bytes(claims_text))
        signature = _decode_bytes(signature_text)
    except (ValueError, RecursionError, binascii.Error):
        header = claims = None
        signature = b""
    if not (isinstance(header, dict) and isinstance(claims, dict)):
        raise NotAuthenticated("this token is not valid; log in again")
    return header, claims, f"{header_text}.{claims_text}".encode(), signature


def _check_signature(key: Mapping[str, Any], algorithm: str, signed_bytes: bytes, signature: bytes) -> None:
    """Raise `NotAuthenticated` unless the signature is valid. The type of the key decides the algorithm."""
    try:
        if key.get("kty") == "RSA" and algorithm == "RS256":
            public_numbers = rsa.RSAPublicNumbers(_decode_number(key["e"]), _decode_number(key["n"]))
            public_numbers.public_key().verify(signature, signed_bytes, padding.PKCS1v15(), SHA256())
            return
        if (
            key.get("kty") == "EC"
            and key.get("crv") == "P-256"
            and algorithm == "ES256"
            and len(signature) == 64
        ):
            public_point = ec.EllipticCurvePublicNumbers(
                _decode_number(key["x"]), _decode_number(key["y"]), ec.SECP256R1()
            )
            signature_halves = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
            public_point.public_key().verify(
                encode_dss_signature(*signature_halves), signed_bytes, ec.ECDSA(SHA256())
            )
            return
    except (InvalidSignature, TypeError, ValueError, KeyError):
        pass
    raise NotAuthenticated("the signature of this token is not valid; log in again")


def _is_number(value: object) -> bool:
    """Return whether a claim is a finite number. Python's `json` also accepts NaN and Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_texts(value: object) -> frozenset[str]:
    """Return the texts of a claim, which is a text or a list."""
    values = value if isinstance(value, list) else [value]
    return frozenset(text for text in values if isinstance(text, str))


def _decode_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _decode_number(text: str) -> int:
    return int.from_bytes(_decode_bytes(text))


def make_identifier(
    identify_own: Callable[[str], Identity], provider: Provider | None
) -> Callable[[str], Identity]:
    """Return a function that identifies our tokens and a provider's tokens, which contain two dots."""

    def identify(text: str) -> Identity:
        return provider.identify(text) if provider and text.count(".") == 2 else identify_own(text)

    return identify
