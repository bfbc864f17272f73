"""A broker is open to other machines only on purpose.

A listener on anything but loopback that asks for no token lets everybody who can connect do everything; one that asks,
but speaks in clear, shows the token to everybody on the way. Both are right in some places (behind a proxy, inside a
container), and then ``http.insecure`` says so. With TLS nothing is in clear, and with ``client_ca`` only those connect
who show a certificate: that stands in the place of a token.
"""

from dataclasses import replace

from syncbrok.config.sections import Config, TlsConfig, is_loopback
from syncbrok.model.errors import BadConfig


def refuse_exposed(config: Config, *, has_tokens: bool = False) -> None:
    """Raises ``BadConfig`` where a listener is open further than ``http.insecure`` says. ``has_tokens``: some were
    created, besides those that are configured."""
    http = config.http
    allowed = {"no": 0, "plaintext": 1, "open": 2}[http.insecure]
    asks = has_tokens or bool(http.tokens) or _asks_for_certificates(http.tls)
    if not is_loopback(http.host) and allowed < (2 if not asks else 0 if http.tls else 1):
        if asks:
            what = f"http.host is {http.host}: tokens would go over the network in clear"
            mend = (
                "set http.tls, or http.insecure: plaintext (SYNCBROK_HTTP_INSECURE, --insecure) where something else "
                "encrypts"
            )
        else:
            what = f"http.host is {http.host} and no tokens are set: everybody who can connect may do everything"
            mend = "set http.tokens, or http.insecure: open (SYNCBROK_HTTP_INSECURE, --insecure) to have it so"
        raise BadConfig(f"{what}; {mend}, or listen on 127.0.0.1", key="http.host")
    for name, tcp in config.frontends.on():
        if not is_loopback(tcp.host) and allowed < 2 and not _asks_for_certificates(tcp.tls):
            what = f"frontends.{name}.host is {tcp.host}: this format knows no tokens, whoever can connect may use it"
            mend = (
                f"set frontends.{name}.tls with a client_ca, or http.insecure: open (SYNCBROK_HTTP_INSECURE, "
                "--insecure) to have it so, or listen on 127.0.0.1"
            )
            raise BadConfig(f"{what}; {mend}", key=f"frontends.{name}.host")


def may_be_open(config: Config) -> bool:
    """Whether its listeners are open no further than ``http.insecure`` says when there are no tokens at all."""
    try:
        refuse_exposed(replace(config, http=replace(config.http, tokens=())))
    except BadConfig:
        return False
    return True


def beside_tokens(config: Config, *, has_tokens: bool = False) -> list[str]:
    """The TCP frontends that let anybody on this machine in without a token, although tokens are set. (Tokens guard
    HTTP only.)"""
    if not has_tokens and not config.http.tokens:
        return []
    return [name for name, tcp in config.frontends.on() if not _asks_for_certificates(tcp.tls)]


def _asks_for_certificates(tls: TlsConfig | None) -> bool:
    return tls is not None and tls.client_ca is not None
