"""A small OpenID Connect provider over loopback: real keys, real requests, one person at a time."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


class Provider:
    """What the provider says; tests change it to lie."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key_id = "one"
        self.signs_with: Any = None
        self.algorithm = "RS256"
        self.claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.asked: list[str] = []
        self.secret = ""
        self._codes: dict[str, dict[str, str]] = {}

    def sign_in(self, address: str) -> dict[str, str]:
        """Play the person at the provider's page; return the parameters of the way back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe()
        self._codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.issuer}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        self.asked.append(path)
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.metadata,
            }
        if path == "/keys":
            public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
            return 200, {"keys": [{**public, "kid": self.key_id, "use": "sig"}]}
        if path == "/token":
            return self._token(form, authorization)
        return 404, {}

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        wanted = "Basic " + base64.b64encode(f"stowage:{self.secret}".encode()).decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
            or (self.secret and authorization != wanted)
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": "stowage", "sub": "ann-1", "nonce": asked["nonce"],
            "iat": now, "exp": now + 300, **self.claims,
        }  # fmt: skip
        key = None if self.algorithm == "none" else self.signs_with or self.key
        token = jwt.encode(claims, key, self.algorithm, headers={"kid": self.key_id})
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": token}


@contextmanager
def providing() -> Iterator[Provider]:
    """Run a provider until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            form = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
            authorization = self.headers.get("Authorization", "")
            code, found = provider.answer(self.path, form, authorization)
            body = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = _serve  # noqa: N815  # names that the base class calls
        do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # its name there
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
