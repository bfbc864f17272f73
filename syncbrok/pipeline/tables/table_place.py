"""Tells an archive from a log where a path may name either. No Spark, and nothing that takes time to import."""

from pathlib import Path
from typing import Final

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.log_snapshot import is_url
from syncbrok.pipeline.object_store import is_bucket, place_in
from syncbrok.pipeline.schema import KINDS

MANIFESTS: Final = "_syncbrok"
"""the folder that every archive has"""
_COMMITS: Final = "_delta_log"


def is_archive(path: str) -> bool:
    """Whether ``path`` names the folder of an archive. Raises ``BadSetting`` where it names one of its tables."""
    if is_bucket(path):
        return True
    if is_url(path):
        return False
    folder = Path(place_in(path).root)
    if folder.name in KINDS and (folder / _COMMITS).is_dir():
        raise BadSetting(
            f"{path} is one table of an archive; give the archive, {folder.parent}, with the option kind: "
            f"{', '.join(KINDS)}"
        )
    return (folder / MANIFESTS).is_dir() or any((folder / kind / _COMMITS).is_dir() for kind in KINDS)
