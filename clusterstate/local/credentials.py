"""Files that the first start creates: keys, certificates, token, kubeconfig.

All are in the state directory with mode 0600 and are made once. The server's certificate is made
again when it is about to expire or the machine's name changed; the authority that signed it stays,
so clients trust it further. The kubeconfig is written again when a port or the token changed.
"""

import base64
import contextlib
import ipaddress
import secrets
import socket
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterstate import environment
from clusterstate.objects.values.addresses import is_for_others
from clusterstate.processes import private_files

_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 397  # what browsers accept
_RENEW_DAYS = 30
_ELSEWHERE = ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1"))
"""Documentation addresses, which are never this host's."""


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Stowage"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _authority(state: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return this installation's certificate authority, made on first use."""
    certificate_file, key_file = state / "ca.crt", state / "ca.key"
    if (pair := _pair(certificate_file, key_file)) and pair[0].not_valid_after_utc > now:
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Stowage authority {secrets.token_hex(4)}")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private_files.write(key_file, _key_bytes(key))
    private_files.write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _pair(
    certificate_file: Path, key_file: Path
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """Return a certificate and its key, `None` unless both exist, are complete, and match.

    After a crash one of the files may be missing or empty.
    """
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    return (certificate, key) if certificate.public_key() == key.public_key() else None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def alternative_names(host: str, advertised: str = "") -> x509.SubjectAlternativeName:
    """Return the names and addresses of the server in its certificate (``own_names``)."""
    names, addresses = environment.own_names(host, advertised)
    return x509.SubjectAlternativeName(
        [
            *(x509.DNSName(name) for name in names),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )


def ensure_certificate(
    state: Path, *, host: str, advertised: str = "", now: datetime
) -> tuple[Path, Path]:
    """Return the paths of the server's certificate chain and key, made or renewed if needed.

    The certificate is for ``alternative_names(host, advertised)``.
    """
    certificate_file, key_file = state / "tls.crt", state / "tls.key"
    authority, authority_key = _authority(state, now)
    alternative_names_ = alternative_names(host, advertised)
    if pair := _pair(certificate_file, key_file):
        found = pair[0]
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if (
            found.issuer == authority.subject
            and found.not_valid_before_utc <= now  # made while the clock was wrong, else
            and found.not_valid_after_utc > now + timedelta(days=_RENEW_DAYS)
            and names == alternative_names_
        ):
            return certificate_file, key_file
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("stowage"))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_SERVER_DAYS))
        .add_extension(alternative_names_, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private_files.write(key_file, _key_bytes(key))
    private_files.write(
        certificate_file, certificate.public_bytes(pem) + authority.public_bytes(pem)
    )
    return certificate_file, key_file


def kubeconfig(
    *, server: str, authority: bytes, token: str, user: str = "admin", namespace: str = ""
) -> str:
    """Return a kubeconfig document with one cluster, one user and one context, all inline.

    authority is the PEM of the certificate authority; empty if a public one signed the server's.
    namespace is kubectl's default namespace; empty for ``default``.
    """
    context = {"cluster": "stowage", "user": user}
    if namespace:
        context["namespace"] = namespace
    cluster: dict[str, str] = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stowage", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "stowage", "context": context}],
            "current-context": "stowage",
        },
        sort_keys=False,
    )


def advertised(host: str) -> str:
    """Return the address by which other hosts reach a server that listens on ``host``.

    It is ``host`` itself if that is such an address, else the source address of packets to other
    networks; empty if there is none. Sends nothing. As kube-apiserver's ``--advertise-address``
    when it is not given: ``ResolveBindAddress`` of apimachinery/pkg/util/net/interface.go, v1.36.
    """
    if is_for_others(host):
        return str(ipaddress.ip_address(host))
    for family, elsewhere in _ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect((elsewhere, 9))
            found = str(one.getsockname()[0])
            if is_for_others(found):
                return found
    return ""


def reachable_host(host: str) -> str:
    """Return the host by which clients on this machine reach a server that listens on `host`."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104  # compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
