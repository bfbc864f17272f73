"""INTERFACES 5: a storage directory through which others could lead the log astray is refused, with what to do."""

import stat
from pathlib import Path

import pytest

from syncbrok.log.segments.directory_lock import DirectoryLock
from syncbrok.model.errors import BadConfig


def test_a_new_directory_is_its_owners(tmp_path: Path) -> None:
    """Mode 0700, whatever the umask leaves to others; those above it are as they are made everywhere."""
    made = tmp_path / "above" / "storage"
    with DirectoryLock(made):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert stat.S_IMODE((made / "lock").stat().st_mode) == 0o600
    assert stat.S_IMODE(made.parent.stat().st_mode) & 0o500 == 0o500


def test_a_file_that_everybody_may_write_to_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that is open to everybody is only told of: volumes of containers are. A group may write."""
    tmp_path.chmod(0o775)
    DirectoryLock(tmp_path).release()
    assert caplog.records == []
    tmp_path.chmod(0o777)
    DirectoryLock(tmp_path).release()
    (told,) = caplog.records
    assert (told.message, vars(told)["mode"]) == ("syncbrok.log.storage_open", "0777")
    (tmp_path / "secrets.json").write_text("{}")
    (tmp_path / "secrets.json").chmod(0o666)
    with pytest.raises(BadConfig, match=r"write to .*secrets\.json"):
        DirectoryLock(tmp_path)


@pytest.mark.parametrize("target", ["/etc/passwd", "nowhere"])
def test_links_among_the_files_are_refused(tmp_path: Path, target: str) -> None:
    """Whoever puts one there has the broker write elsewhere; the directory itself may be reached by one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    DirectoryLock(tmp_path / "link").release()
    (tmp_path / "real" / "checkpoint").symlink_to(target)
    with pytest.raises(BadConfig, match=f"symbolic link to {target}.*remove the link"):
        DirectoryLock(tmp_path / "link")
