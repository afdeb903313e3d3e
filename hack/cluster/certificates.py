"""A cluster's own certificate authority, and what it signs."""

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hack.cluster.folders import write_private

_VALID = (dt.timedelta(hours=-1), dt.timedelta(days=365))
"""From when until when, from now on."""
_USAGES = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


@dataclass(frozen=True)
class KeyPair:
    """Files of a certificate and its key, in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates and keeps them in a folder; what is there already is taken as it is."""

    folder: Path

    @property
    def own(self) -> KeyPair:
        """The authority's."""
        return self._pair("ca")

    @property
    def service_accounts(self) -> Path:
        """Key by which tokens of service accounts are signed and checked."""
        return self.folder / "service-accounts.key"

    def create(self) -> None:
        """Make the authority itself, and the service accounts' key."""
        if self.own.certificate.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.service_accounts, _pem(ec.generate_private_key(ec.SECP256R1())))
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("quire-cluster", None)
        builder = _builder(name, name, key, _VALID).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._write(self.own, builder.sign(key, hashes.SHA256()), key)

    def issue(
        self,
        file_name: str,
        user: str,
        *,
        group: str | None = None,
        hosts: Iterable[str] = (),
        valid: tuple[dt.timedelta, dt.timedelta] = _VALID,
    ) -> KeyPair:
        """Sign a certificate for a user, or for a server at these names and addresses."""
        pair = self._pair(file_name)
        if pair.certificate.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.load_pem_x509_certificate(self.own.certificate.read_bytes())
        own_key = serialization.load_pem_private_key(self.own.key.read_bytes(), None)
        if not isinstance(own_key, ec.EllipticCurvePrivateKey):
            raise TypeError("bug: the authority's key is not the one that create() writes")
        builder = _builder(_name(user, group), own.subject, key, valid).add_extension(
            x509.ExtendedKeyUsage(_USAGES), critical=False
        )
        if names := [_host(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._write(pair, builder.sign(own_key, hashes.SHA256()), key)
        return pair

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    @staticmethod
    def _write(
        pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """The certificate comes last: where it is, the key is."""
        write_private(pair.key, _pem(key))
        write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: tuple[dt.timedelta, dt.timedelta],
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
    )


def _name(user: str, group: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # the form "EC PRIVATE KEY": the API server takes no other for service accounts
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
