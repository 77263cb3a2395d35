"""What the first start makes: private, made once, and accepted by real clients."""

import ipaddress
import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from clusterstate.local import credentials
from clusterstate.objects.values.addresses import is_for_others
from clusterstate.processes import private_files
from tests.clock import NOW


def test_a_secret_is_made_once_and_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert private_files.read_or_create(file, "one") == "one"
    assert private_files.read_or_create(file, "two") == "one"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("left", [b"", b"\n", b"half-a-tok", b"\xff\n"])
def test_a_secret_that_a_crash_left_empty_or_cut_off_is_not_trusted(
    tmp_path: Path, left: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(left)
    assert private_files.read(file) is None
    assert private_files.read_or_create(file, "whole") == "whole"
    assert private_files.read(file) == "whole"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_several_that_make_a_secret_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(
                lambda n: private_files.read_or_create(tmp_path / "token", f"t{n}"), range(32)
            )
        )
    assert set(found) == {private_files.read(tmp_path / "token")}


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "tls.key", "tls.crt"])
def test_a_certificate_file_that_a_crash_left_empty_is_made_again(
    tmp_path: Path, name: str
) -> None:
    credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW)
    (tmp_path / name).write_bytes(b"")
    certificate, key = credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)


def test_certificate_files_are_private_and_stay(tmp_path: Path) -> None:
    credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW + timedelta(days=100))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert set(before) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("host", "days"), [("127.0.0.1", 380), ("10.1.2.3", 0)], ids=["expiring", "other-host"]
)
def test_a_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path, host: str, days: int
) -> None:
    certificate, _ = credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW)
    old, authority = certificate.read_bytes(), (tmp_path / "ca.crt").read_bytes()
    credentials.ensure_certificate(tmp_path, host=host, now=NOW + timedelta(days=days))
    assert certificate.read_bytes() != old
    assert (tmp_path / "ca.crt").read_bytes() == authority


def test_a_certificate_of_a_time_that_was_set_wrong_is_made_again(tmp_path: Path) -> None:
    """Clients refuse one that is not valid yet, until that time has come."""
    wrong = NOW + timedelta(days=800)
    certificate, _ = credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=wrong)
    old, authority = certificate.read_bytes(), (tmp_path / "ca.crt").read_bytes()
    credentials.ensure_certificate(tmp_path, host="127.0.0.1", now=NOW)
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    assert certificate.read_bytes() != old
    assert found.not_valid_before_utc <= NOW < found.not_valid_after_utc
    assert (tmp_path / "ca.crt").read_bytes() == authority


@pytest.mark.real_clock
def test_openssl_accepts_the_chain_for_every_local_name(tmp_path: Path) -> None:
    certificate, key = credentials.ensure_certificate(
        tmp_path,
        host="0.0.0.0",
        now=datetime.now(UTC),  # noqa: TID251  # OpenSSL reads the real clock
    )
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate, key)
    for name in ("localhost", "127.0.0.1", "::1"):
        asking = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        to_server, to_client = (ssl.MemoryBIO(), ssl.MemoryBIO())
        client = asking.wrap_bio(to_client, to_server, server_hostname=name)
        server = serving.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert client.version() in {"TLSv1.2", "TLSv1.3"}


def test_a_wildcard_address_is_no_name() -> None:
    names = credentials.alternative_names("0.0.0.0")
    assert "0.0.0.0" not in {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    assert "stowage.example" in credentials.alternative_names(
        "stowage.example"
    ).get_values_for_type(x509.DNSName)


def test_the_certificate_is_for_the_service_kubernetes_and_its_endpoints() -> None:
    names = credentials.alternative_names("127.0.0.1", "10.1.2.3")
    addresses = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    assert {"10.96.0.1", "10.1.2.3"} <= addresses
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("host", ["10.1.2.3", "2001:db8:0::7"])
def test_a_server_at_an_address_of_its_own_is_advertised_there(host: str) -> None:
    assert credentials.advertised(host) == str(ipaddress.ip_address(host))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "localhost"])
def test_elsewhere_a_server_is_advertised_at_an_address_of_the_host_or_at_none(host: str) -> None:
    found = credentials.advertised(host)
    assert not found or is_for_others(found)
    if found:  # a socket may be bound to an address of this host alone
        family = socket.AF_INET6 if ":" in found else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((found, 0))


def test_the_kubeconfig_names_server_authority_and_token() -> None:
    document = yaml.safe_load(
        credentials.kubeconfig(server="https://h:1", authority=b"PEM", token="secret")
    )
    context = document["contexts"][0]
    assert document["current-context"] == context["name"]
    assert document["clusters"][0]["cluster"] == {
        "server": "https://h:1",
        "certificate-authority-data": "UEVN",
    }
    assert document["users"][0]["user"] == {"token": "secret"}


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    assert private_files.write(tmp_path / "file", b"a")
    assert not private_files.write(tmp_path / "file", b"a")
    assert private_files.write(tmp_path / "file", b"b")
