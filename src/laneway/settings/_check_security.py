"""Rules between the settings of encryption and login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path as FilePath

    from laneway.settings._cluster import SecuritySettings
    from laneway.settings._located_values import Path

__all__ = ["Finding", "check_security"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule, the setting to change, and the other settings it depends on."""

    path: Path
    message: str
    fix: str
    also: tuple[Path, ...] = ()
    is_warning: bool = False


def check_security(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    """Everything wrong or risky in how one cluster is reached."""
    protocol = (*path, "protocol")
    has_tls = security.protocol.endswith("ssl")
    if security.protocol.startswith("sasl"):
        yield from _login(path, security)
        yield from _in_the_clear(path, security)
    else:
        for name in ("mechanism", "username", "password"):
            if getattr(security, name) is not None:
                yield Finding(
                    (*path, name),
                    f"nobody logs in with protocol {security.protocol}",
                    "write protocol: sasl_ssl, or remove it",
                    (protocol,),
                )
    if has_tls:
        yield from _tls(path, security)
    else:
        for name in ("ca", "certificate", "key", "key_password"):
            if getattr(security, name):
                yield Finding(
                    (*path, name),
                    f"nothing is encrypted with protocol {security.protocol}",
                    "write protocol: ssl or sasl_ssl, or remove it",
                    (protocol,),
                )


def _login(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    if security.mechanism is None:
        yield Finding(
            (*path, "mechanism"),
            f"protocol {security.protocol} needs it",
            "write mechanism: SCRAM-SHA-512",
            ((*path, "protocol"),),
        )
    elif security.mechanism == "OAUTHBEARER":
        for name in ("token_url", "client_id", "client_secret"):
            if getattr(security.oauth, name) is None:
                yield Finding(
                    (*path, "oauth", name), "OAUTHBEARER needs it", f"add '{name}: ...'", ((*path, "mechanism"),)
                )
        url = security.oauth.token_url
        if url is not None and not url.startswith("https://"):
            yield Finding(
                (*path, "oauth", "token_url"), "the address that receives the secret is not https", "write https://..."
            )
    else:
        for name in ("username", "password"):
            if getattr(security, name) is None:
                also = ((*path, "mechanism"), (*path, "protocol"))
                yield Finding((*path, name), f"{security.mechanism} needs it", f"add '{name}: ...'", also)


def _in_the_clear(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    if security.protocol != "sasl_plaintext" or security.mechanism is None:
        return
    also = ((*path, "mechanism"), (*path, "allow_plaintext_passwords"))
    if security.mechanism.startswith("SCRAM"):
        text = "SCRAM without TLS can be broken by whoever listens"
        yield Finding((*path, "protocol"), text, "write protocol: sasl_ssl", also, is_warning=True)
    elif security.allow_plaintext_passwords:
        text = "the password is sent in the clear"
        yield Finding((*path, "allow_plaintext_passwords"), text, "write protocol: sasl_ssl", also, is_warning=True)
    else:
        text = f"{security.mechanism} without TLS sends the password in the clear"
        yield Finding((*path, "protocol"), text, "write protocol: sasl_ssl, or allow_plaintext_passwords: true", also)


def _tls(path: Path, security: SecuritySettings) -> Iterator[Finding]:
    files = {"ca": security.ca, "certificate": (security.certificate,), "key": (security.key,)}
    for name, paths in files.items():
        for file in paths:
            if file is not None and not _exists(file):
                yield Finding((*path, name), f"the file {file.name!r} does not exist", "give the path of a PEM file")
    for name, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(security, name) is not None and getattr(security, other) is None:
            yield Finding((*path, name), f"it is of no use without {other}", f"add '{other}: ...'", ((*path, other),))
    if security.verify:
        return
    also = ((*path, "allow_insecure"),)
    if security.allow_insecure:
        text = "the broker is not checked: anybody in between can read and change everything"
        yield Finding(
            (*path, "verify"), text, "write verify: true and give the authority as 'ca'", also, is_warning=True
        )
    else:
        text = "an unchecked broker can be anybody"
        yield Finding((*path, "verify"), text, "write verify: true, or also allow_insecure: true", also)


def _exists(file: FilePath) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
