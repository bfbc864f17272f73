"""``broker.yml``, ``SYNCBROK_*`` and flags: which one wins, and that a mistake is named where it stands."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from syncbrok.config import (
    Config,
    EngineConfig,
    FramedConfig,
    HttpConfig,
    MsgpackBusConfig,
    ResolverConfig,
    TlsConfig,
    TracesConfig,
    load_config,
)
from syncbrok.delivery.webhook.address_guard import NetworkPorts
from syncbrok.model.errors import BadConfig
from syncbrok.model.message import QueueSettings, Scope
from syncbrok.model.tokens import Token

SHA = "ab" * 32


def load(tmp_path: Path, text: str, variables: dict[str, str] | None = None, **flags: str) -> Config:
    file = tmp_path / "broker.yml"
    file.write_text(text)
    return load_config(file, variables or {}, {f"--{name}": value for name, value in flags.items()})


def test_every_key_of_the_documentation_is_read(tmp_path: Path) -> None:
    """The file of INTERFACES section 1 and its further keys mean what they say."""
    config = load(
        tmp_path,
        f"""
storage:
  {{path: data/, sync: 'interval:20', segment: 1MiB, retention: 2d, reader_hold: 2h, reserve: 8MiB, archive: old/}}
http:
  host: 0.0.0.0
  port: 11000
  body: 2MiB
  parents: 8
  body_timeout: 5s
  tokens:
    - {{name: ci, sha256: {SHA.upper()}, scopes: [publish, read]}}
guard: {{allow: [10.0.0.0/8, 'fd00::/8']}}
frontends:
  framed: {{port: 8081}}
  msgpack_bus:
groups: {{idle_after: 90s}}
defaults: {{scope: same}}
logging: {{level: WARNING, format: text}}
""",
    )
    assert config.groups.idle_after_s == 90.0
    assert config.queue_defaults == QueueSettings(scope=Scope.SAME)
    assert config.storage.path == Path("data")
    assert config.storage.sync == "interval:20"
    assert (config.storage.segment_bytes, config.storage.retention_s) == (1 << 20, 172_800.0)
    assert config.storage.reader_hold_s == 7_200.0
    assert (config.storage.reserve_bytes, config.storage.archive) == (8 << 20, Path("old"))
    assert (config.http.host, config.http.port, config.http.content_bytes_max) == ("0.0.0.0", 11_000, 2 << 20)
    assert (config.http.parents_max, config.http.body_timeout_s) == (8, 5.0)
    assert config.http.tokens == (Token("ci", SHA, frozenset({"publish", "read"})),)
    assert config.guard.allow == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert config.frontends.framed == FramedConfig(port=8_081)
    assert config.frontends.msgpack_bus == MsgpackBusConfig()
    assert config.frontends.topics is None
    assert (config.logging.level, config.logging.format) == ("warning", "text")


CLUSTER = """
cluster:
  node: a
  engine: [{url: 'nats://10.0.0.1:4222', monitor: 'http://10.0.0.1:8222'}]
  advertise: http://10.0.0.1:10000
  key: /etc/syncbrok/cluster.key
"""


def test_a_node_of_a_cluster(tmp_path: Path) -> None:
    """CLUSTER: without the section this machine alone writes the log; with it four keys must be there."""
    assert load(tmp_path, "storage: {}").cluster is None
    found = load(tmp_path, CLUSTER + "  lease: 5s\n  keep: all\n").cluster
    assert found is not None
    assert (found.space, found.node, found.lease_s, found.keep) == ("main", "a", 5.0, "all")
    assert found.engine == (EngineConfig("nats://10.0.0.1:4222", "http://10.0.0.1:8222"),)
    for name in ("node", "engine", "advertise", "key"):
        without = "\n".join(line for line in CLUSTER.splitlines() if not line.startswith(f"  {name}:"))
        with pytest.raises(BadConfig, match=f"no {name}"):
            load(tmp_path, without)
    with pytest.raises(BadConfig, match="a quorum has fsynced"):
        load(tmp_path, f"storage: {{sync: 'interval:50'}}\n{CLUSTER}")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ("quorum", 1.0, False)),
        ("local_sync: 50ms", ("quorum", 0.05, False)),
        ("local_sync: always", ("quorum", 0.0, True)),
        ("acknowledge: quorum+local", ("quorum+local", 1.0, True)),
    ],
)
def test_what_an_acknowledgement_means_in_a_cluster(
    tmp_path: Path, given: str, wanted: tuple[str, float, bool]
) -> None:
    """CLUSTER: who has a batch when it is answered, and when a node fsyncs its own files. ``quorum+local`` needs each
    commit fsynced."""
    config = load(tmp_path, f"{CLUSTER}  {given}\n")
    assert config.cluster is not None
    assert (config.sync, config.cluster.local_sync_s, config.cluster.syncs_each) == wanted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("local_sync: never", "always, or a duration from 10ms to 1m"),
        ("local_sync: 1h", "always, or a duration from 10ms to 1m"),
        ("acknowledge: local", "quorum or quorum.local"),
    ],
)
def test_what_it_cannot_mean(tmp_path: Path, given: str, expected: str) -> None:
    """A mistake in either is refused, with what was expected."""
    with pytest.raises(BadConfig, match=expected):
        load(tmp_path, f"{CLUSTER}  {given}\n")


def test_the_archive_is_a_directory_or_the_pipeline(tmp_path: Path) -> None:
    """``storage.archive: pipeline`` is the pipeline's; a directory of that name is written ``./pipeline``."""
    assert load(tmp_path, "storage: {archive: pipeline}").storage.archive == "pipeline"
    assert load(tmp_path, "storage: {archive: ./pipeline}").storage.archive == Path("pipeline")
    assert load(tmp_path, "storage: {archive: ''}").storage.archive is None
    assert load(tmp_path, "", {"SYNCBROK_STORAGE_ARCHIVE": "pipeline"}).storage.archive == "pipeline"


def test_without_anything_there_are_defaults() -> None:
    """Every key has a default: storage/ in the working directory, loopback, port 10000, every commit fsynced."""
    config = load_config(None, {}, {})
    assert config == Config()
    assert config.storage.sync == "always"
    assert config.http == HttpConfig("127.0.0.1", 10_000)


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    """INTERFACES 1: flags, then ``SYNCBROK_*``, then the file, then the original's ``Storage: path``."""
    text = "http: {port: 1, host: localhost}\nlogging: {level: error}\n"
    config = load(tmp_path, text, {"SYNCBROK_HTTP_PORT": "2", "SYNCBROK_LOGGING_LEVEL": "debug"}, port="3")
    assert (config.http.port, config.http.host, config.logging.level) == (3, "localhost", "debug")
    assert load(tmp_path, text, {"SYNCBROK_HTTP_PORT": "2"}).http.port == 2
    assert load(tmp_path, text).http.port == 1
    assert load_config(None, {}, {}, Path("original")).storage.path == Path("original")
    assert load_config(None, {"SYNCBROK_STORAGE_PATH": "v"}, {}, Path("original")).storage.path == Path("v")


def test_short_and_long_variables() -> None:
    """``SYNCBROK_PORT`` and ``SYNCBROK_HOST`` are short for the HTTP listener's; the long names win over them."""
    short = {"SYNCBROK_PORT": "5", "SYNCBROK_HOST": "::1"}
    assert load_config(None, short, {}).http == HttpConfig("::1", 5)
    assert load_config(None, short | {"SYNCBROK_HTTP_PORT": "6"}, {}).http.port == 6
    of_kubernetes = {"SYNCBROK_PORT": "tcp://10.0.0.1:80", "SYNCBROK_HTTP_PORT": "tcp://10.0.0.1:80"}
    of_kubernetes |= {"SYNCBROK_HTTP_SERVICE_HOST": "10.0.0.1", "SYNCBROK_CLUSTER_PORT_6222_TCP_ADDR": "10.0.0.1"}
    assert load_config(None, of_kubernetes, {}).http.port == 10_000


def test_lists_in_variables() -> None:
    """Networks are a list with commas, tokens are YAML; a frontend that a variable names is on."""
    config = load_config(
        None,
        {
            "SYNCBROK_GUARD_ALLOW": "10.0.0.0/8, 192.168.0.0/16",
            "SYNCBROK_HTTP_TOKENS": f'[{{"name": "a", "sha256": "{SHA}", "scopes": ["admin"]}}]',
            "SYNCBROK_FRONTENDS_TOPICS_PORT": "3001",
            "SYNCBROK_URL": "http://elsewhere",
        },
        {},
    )
    assert config.guard.allow == (ip_network("10.0.0.0/8"), ip_network("192.168.0.0/16"))
    assert config.http.tokens[0].name == "a"
    assert config.frontends.topics is not None
    assert config.frontends.topics.port == 3_001


def test_values_may_come_from_the_environment(tmp_path: Path) -> None:
    """``${NAME}`` is replaced, and a plain value is read again after it."""
    variables = {"PORT": "7000", "NETWORK": "10.0.0.0/8"}
    config = load(tmp_path, "http:\n  port: ${PORT}\nguard:\n  allow: ['${NETWORK}']\n", variables)
    assert (config.http.port, config.guard.allow) == (7_000, (ip_network("10.0.0.0/8"),))


def test_a_network_may_be_allowed_with_some_ports_only(tmp_path: Path) -> None:
    """INTERFACES 1, ``guard.allow``: ``CIDR``, ``CIDR:PORT`` or ``CIDR:PORT-PORT``, in the file and the variable."""
    networks = "10.0.0.0/8:443, fd00::/8:8000-8999, 127.0.0.1:10000, fd00::1, 192.168.0.0/16"
    wanted = (
        NetworkPorts(ip_network("10.0.0.0/8"), 443, 443),
        NetworkPorts(ip_network("fd00::/8"), 8_000, 8_999),
        NetworkPorts(ip_network("127.0.0.1"), 10_000, 10_000),
        ip_network("fd00::1"),
        ip_network("192.168.0.0/16"),
    )
    given = ", ".join(f"'{one.strip()}'" for one in networks.split(","))
    assert load(tmp_path, f"guard: {{allow: [{given}]}}\n").guard.allow == wanted
    assert load_config(None, {"SYNCBROK_GUARD_ALLOW": networks}, {}).guard.allow == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("dns", ResolverConfig()),
        ("system", ResolverConfig(system=True)),
        ("127.0.0.1:5353, fd00::53", ResolverConfig(servers=("127.0.0.1:5353", "fd00::53"))),
        ("[fd00::53]:53", ResolverConfig(servers=("[fd00::53]:53",))),
    ],
)
def test_who_is_asked_for_names_is_one_word_or_a_list(tmp_path: Path, given: str, wanted: ResolverConfig) -> None:
    """INTERFACES 1, ``resolver``: in the file, as a word or a list, and in the variable."""
    listed = given if given.isalpha() else "[" + ", ".join(f"'{one.strip()}'" for one in given.split(",")) + "]"
    assert load(tmp_path, f"resolver: {listed}\n").resolver == wanted
    assert load_config(None, {"SYNCBROK_RESOLVER": given}, {}).resolver == wanted
    assert load(tmp_path, "").resolver == ResolverConfig()


MISTAKES = [
    ("resolver: bind\n", 1, "resolver: expected dns, system, or a list of name servers"),
    ("resolver: []\n", 1, "resolver: expected dns, system, or a list of name servers"),
    ("resolver: ['10.0.0.53:0']\n", 1, "resolver: expected dns, system, or a list of name servers"),
    ("resolver: {system: true}\n", 1, "resolver: expected dns, system, or a list of name servers"),
    ("storage:\n  pth: x\n", 2, "storage.pth: unknown key; did you mean 'path'?"),
    ("htp: {}\n", 1, "htp: unknown key; did you mean 'http'?"),
    (
        "http:\n  port: 1\n  host: a\n  port: 2\n",
        4,
        "http.port: the key stands here for the second time; first in line 2",
    ),
    ("http:\n\n  port: 70000\n", 3, "http.port: expected a whole number from 0 to 65535, found 70000"),
    ("http: {port: true}\n", 1, "http.port: expected a whole number"),
    ("http: {host: 'a b'}\n", 1, "http.host: expected an address or host name"),
    ("http: []\n", 1, "http: expected a mapping (key: value), found a list"),
    ("- a\n", 1, "expected a mapping (key: value), found a list"),
    ("http: 5\n", 1, "http: expected a mapping (key: value), found '5'"),
    ("storage:\n  sync: sometimes\n", 2, "storage.sync: expected always, or interval:<ms>"),
    ("storage:\n  sync: interval:0\n", 2, "storage.sync: expected always, or interval:<ms>"),
    ("storage:\n  segment: 1KiB\n", 2, "storage.segment: expected a size from 64KiB to 1GiB, found '1KiB'"),
    ("storage:\n  segment: 64M\n", 2, "storage.segment: expected a size such as"),
    ("storage:\n  retention: 7 days\n", 2, "storage.retention: expected a duration such as"),
    ("storage:\n  path:\n", 2, "storage.path: expected a path, found None"),
    ("guard:\n  allow: [10.0.0.1/8]\n", 2, "guard.allow[0]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow:\n    - 10.0.0.0/8\n    - ten\n", 4, "guard.allow[1]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow: ['10.0.0.0/8:0']\n", 2, "guard.allow[0]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow: ['10.0.0.0/8:9-8']\n", 2, "guard.allow[0]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow: ['10.0.0.0/8:65536']\n", 2, "guard.allow[0]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow: ['10.0.0.0/8:http']\n", 2, "guard.allow[0]: expected a network such as 10.0.0.0/8"),
    ("guard:\n  allow: 5\n", 2, "guard.allow: expected a list of networks"),
    ("frontends:\n  frammed: {}\n", 2, "frontends.frammed: unknown key; did you mean 'framed'?"),
    ("frontends:\n  framed:\n    prt: 1\n", 3, "frontends.framed.prt: unknown key; did you mean 'port'?"),
    ("logging:\n  level: loud\n", 2, "logging.level: expected debug or info or warning or error, found 'loud'"),
    (
        "http:\n  tokens:\n    - {name: a, sha256: x, scopes: [read]}\n",
        3,
        "http.tokens[0]: token 'a': expected sha256 as 64 hex digits",
    ),
    (
        f"http:\n  tokens:\n    - {{name: a, sha256: {SHA}, scopes: [read]}}\n    - name: b\n      token: verysecret\n",
        4,
        "http.tokens[1]: expected {name, sha256, scopes}",
    ),
    (
        "http:\n  tokens:\n" + f"    - {{name: a, sha256: {SHA}, scopes: [read]}}\n" * 2,
        2,
        "http.tokens: two tokens are named 'a'",
    ),
    ("http:\n  tokens: [{name: a, token: verysecret}]\n", 2, "expected {name, sha256, scopes}"),
    (f"http:\n  tokens: [{{name: a, sha256: {SHA}, scopes: [all]}}]\n", 2, "scopes of token 'a' as a list of publish"),
    ("http: &a {port: 1}\nstorage: *a\n", 2, "aliases (*a) are not read here"),
    ("http: {port: 1\n", 2, "is not YAML"),
    ("http: {port: ${PORT}}\n", 1, "inside {...} and [...] put ${NAME} in quotes"),
    ("http: {port: 1}\n---\nhttp: {}\n", 2, "is not YAML"),
    ("http:\n  port: ${PRT}\n", 2, "http.port: the environment variable PRT is not set"),
    ("http:\n  port: ${oh no}\n", 2, "http.port: expected ${NAME}"),
    ("http:\n  port: !!python/object:os.system 1\n", 2, "http.port: tags are not read here"),
    ("http:\n  ? [a, b]\n  : 1\n", 2, "http: expected a plain key"),
    ("http:\n  port: \xff\n", 2, "is not UTF-8 text"),
    ("http:\n  port: 010\n", 2, "http.port: a number that begins with 0 is octal to some programs"),
    ("http:\n  body_timeout: 1:30\n", 2, "http.body_timeout: numbers with a colon count in sixties"),
    ("traces:\n  share: 1:30.5\n", 2, "traces.share: numbers with a colon count in sixties"),
]


@pytest.mark.parametrize(("text", "line", "said"), MISTAKES)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path: Path, text: str, line: int, said: str) -> None:
    """A mistake in the file stops the start with file, line, key and what was expected (INTERFACES 1)."""
    file = tmp_path / "broker.yml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadConfig) as raised:
        load_config(file, {}, {})
    assert f"broker.yml:{line}: " in str(raised.value)
    assert said in str(raised.value)
    assert raised.value.exit_code == 2
    assert "verysecret" not in str(raised.value)


@pytest.mark.parametrize(
    ("variables", "flags", "said"),
    [
        ({"SYNCBROK_HTTP_TOKENS": "[{name: a}]"}, {}, "SYNCBROK_HTTP_TOKENS: http.tokens[0]: expected {name, sha256"),
        ({"SYNCBROK_HTTP_PORT": "x"}, {}, "SYNCBROK_HTTP_PORT: expected a whole number from 0 to 65535, found 'x'"),
        ({"SYNCBROK_PORT": "x"}, {}, "SYNCBROK_PORT: expected a whole number"),
        ({"SYNCBROK_HTTP_PROT": "1"}, {}, "SYNCBROK_HTTP_PROT: unknown variable; did you mean 'SYNCBROK_HTTP_PORT'?"),
        ({"SYNCBROK_HTTP_TOKENS": "secret"}, {}, "SYNCBROK_HTTP_TOKENS: http.tokens: expected a list"),
        ({}, {"--port": "-1"}, "--port: expected a whole number"),
        ({}, {"--storage": ""}, "--storage: expected a path"),
    ],
)
def test_a_mistake_in_a_variable_or_flag_names_it(variables: dict[str, str], flags: dict[str, str], said: str) -> None:
    """There is no line: the variable or flag is named instead."""
    with pytest.raises(BadConfig) as raised:
        load_config(None, variables, flags)
    assert said in str(raised.value)


def test_what_a_variable_held_is_not_repeated(tmp_path: Path) -> None:
    """A value out of the environment may be a secret: the mistake names the variable, not what it held."""
    with pytest.raises(BadConfig) as raised:
        load(tmp_path, "http:\n  port: ${PASSWORD}", {"PASSWORD": "hunter2"})
    assert "found something else in ${PASSWORD}" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_files_that_cannot_be_read_or_are_huge(tmp_path: Path) -> None:
    """No file, a directory, or more than a MiB of it is a mistake, not a traceback; so is nesting without end."""
    with pytest.raises(BadConfig, match=r"none\.yml: cannot be read: No such file"):
        load_config(tmp_path / "none.yml", {}, {})
    with pytest.raises(BadConfig, match="cannot be read"):
        load_config(tmp_path, {}, {})
    with pytest.raises(BadConfig, match="is larger than"):
        load(tmp_path, "#" * (1 << 20) + "\n")
    with pytest.raises(BadConfig, match="nested too deeply"):
        load(tmp_path, "[" * 1_000)


def test_loopback_only_looks_at_every_listener(tmp_path: Path) -> None:
    """Endpoints on this machine are allowed while nobody outside can connect, over any frontend (INTERFACES 1)."""
    assert load(tmp_path, "").loopback_only
    assert load(tmp_path, "http: {host: '::1'}\nframed:\n".replace("framed:\n", "")).loopback_only
    assert load(tmp_path, "http: {host: localhost}\nfrontends: {framed: {}}").loopback_only
    assert not load(tmp_path, "http: {host: 0.0.0.0}").loopback_only
    assert not load(tmp_path, "frontends: {topics: {host: '::'}}").loopback_only
    assert not load(tmp_path, "http: {host: broker.internal}").loopback_only


def test_the_file_in_the_repository_says_the_defaults() -> None:
    """``config/broker.yml`` shows every key with its default: whoever reads it knows what is set without it."""
    assert load_config(Path(__file__).parents[2] / "config/broker.yml", {}, {}) == Config()


def test_each_listener_may_speak_tls(tmp_path: Path) -> None:
    """INTERFACES 1, TLS: in the file and by variables; a TCP frontend is turned on by its TLS as by any other key."""
    file = tmp_path / "broker.yml"
    file.write_text("http: {tls: {cert: a.crt, key: a.key}}\nfrontends: {topics: {tls: {cert: b.crt, key: b.key}}}\n")
    variables = {"SYNCBROK_HTTP_TLS_CLIENT_CA": "c.pem", "SYNCBROK_FRONTENDS_FRAMED_TLS_CERT": "d.crt"}
    found = load_config(file, {**variables, "SYNCBROK_FRONTENDS_FRAMED_TLS_KEY": "d.key"}, {})
    assert found.http.tls == TlsConfig(Path("a.crt"), Path("a.key"), Path("c.pem"))
    assert found.frontends.topics is not None
    assert found.frontends.topics.tls == TlsConfig(Path("b.crt"), Path("b.key"))
    assert found.frontends.framed is not None
    assert found.frontends.framed.tls == TlsConfig(Path("d.crt"), Path("d.key"))
    assert found.frontends.multiplexed is None
    with pytest.raises(BadConfig, match=r"frontends\.framed\.tls has cert and no key"):
        load_config(file, variables, {})


def test_traces_are_off_unless_a_collector_is_named(tmp_path: Path) -> None:
    """INTERFACES 1, ``traces``: in the file and in variables; the path that collectors have is filled in."""
    assert load(tmp_path, "").traces == TracesConfig()
    given = load(tmp_path, "traces: {endpoint: 'http://127.0.0.1:4318', share: 0.25, headers: 'x-key=a=b, x-b=c'}\n")
    wanted = TracesConfig("http://127.0.0.1:4318/v1/traces", 0.25, headers=(("x-key", "a=b"), ("x-b", "c")))
    assert given.traces == wanted
    variables = {"SYNCBROK_TRACES_ENDPOINT": "https://traces.example/otlp", "SYNCBROK_TRACES_SHARE": "1"}
    assert load_config(None, variables, {}).traces == TracesConfig("https://traces.example/otlp")


@pytest.mark.parametrize(
    "text",
    [
        "traces: {endpoint: 4318}\n",
        "traces: {endpoint: 'http://user:secret@traces.example'}\n",
        "traces: {share: 0}\n",
        "traces: {share: 1.5}\n",
        "traces: {service: 'a b'}\n",
        "traces: {headers: 'x-key'}\n",
    ],
)
def test_mistakes_in_traces_are_named(tmp_path: Path, text: str) -> None:
    """INTERFACES 1: file, line, key and what was expected."""
    with pytest.raises(BadConfig, match=r"broker\.yml:1: traces"):
        load(tmp_path, text)
