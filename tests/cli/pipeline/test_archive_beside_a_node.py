"""Whom ``syncbrok pipeline archive`` tells what is archived: the directory's file, or a node of its cluster."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs syncbrok[cluster]")
pytest.importorskip("pyspark", reason="needs syncbrok[spark]")

from syncbrok.cli.exits import CommandFailed
from syncbrok.cli.pipeline.archive import _leader_of
from syncbrok.cluster.generation import remember
from syncbrok.cluster.leader_archive import LeaderArchive
from syncbrok.cluster.vault import make_key
from syncbrok.model.errors import BadConfig

CLUSTER = """cluster:
  space: main
  node: a
  engine: [{url: "nats://127.0.0.1:4222", monitor: "http://127.0.0.1:8222"}]
  key: KEY
  advertise: http://127.0.0.1:10000
"""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    """Of a node; the working directory is another one, without a configuration."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "here").mkdir()
    remember(tmp_path / "storage", 1)
    before = Path.cwd()
    os.chdir(tmp_path / "here")
    yield tmp_path / "storage"
    os.chdir(before)


def configured(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("KEY", str(path.with_name("key"))))
    return path


def test_a_single_brokers_log_is_noted_in_its_directory(tmp_path: Path) -> None:
    """As ever, whatever is configured here."""
    assert _leader_of(tmp_path, configured(tmp_path / "broker.yml", CLUSTER)) is None


def test_beside_a_node_the_leader_is_asked(storage: Path) -> None:
    """The configuration that is given, else that of the working directory."""
    given = configured(storage.parent / "broker.yml", CLUSTER)
    with pytest.raises(BadConfig, match=r"cluster\.key"):
        _leader_of(storage, given)
    make_key(given.with_name("key"))
    assert isinstance(_leader_of(storage, given), LeaderArchive)
    make_key(configured(Path("config/broker.yml"), CLUSTER).with_name("key"))
    assert isinstance(_leader_of(storage, None), LeaderArchive)


def test_without_its_configuration_nothing_is_guessed(storage: Path) -> None:
    """What is noted in one node's directory alone would be known to that node alone."""
    with pytest.raises(CommandFailed, match="no configuration is not that node's"):
        _leader_of(storage, None)
    configured(Path("config/broker.yml"), "storage: {retention: 1d}\n")
    with pytest.raises(CommandFailed, match="is not that node's"):
        _leader_of(storage, None)


def test_a_node_that_has_left_the_cluster_is_a_single_broker(storage: Path) -> None:
    """Its configuration says nothing of a cluster any more: the one that is given, or that of this directory."""
    assert _leader_of(storage, configured(storage.parent / "broker.yml", "storage: {retention: 1d}\n")) is None
    configured(Path("config/broker.yml"), f"storage: {{path: {storage}}}\n")
    assert _leader_of(storage, None) is None
