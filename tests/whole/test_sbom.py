"""The software bill of materials names what an installation runs on, all of it and nothing else."""

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from tests.whole.test_dependencies import listed
from tests.whole.test_tidy import ROOT


def made(*extras: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.sbom", *extras]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout)  # type: ignore[no-any-return]


def test_all_that_is_asked_for_is_there_all_the_way_down() -> None:
    """SECURITY.md: each dependency with its version and package URL, and theirs; what tests need is none of it."""
    bill = made()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = {one["name"]: one for one in bill["components"]}
    assert listed()[""] <= names.keys()
    assert "pytest" not in names
    assert "frozenlist" in names, "aiohttp needs it"
    for name, one in names.items():
        assert one["version"] == version(name)
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{name}@{one['version']}"
    assert names["aiohttp"]["licenses"]
    references = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    for edge in bill["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= references
    (whole,) = [edge for edge in bill["dependencies"] if edge["ref"].startswith("pkg:pypi/syncbrok@")]
    assert len(whole["dependsOn"]) == len(listed()[""])


def test_an_extra_adds_what_it_asks_for_and_the_same_is_the_same() -> None:
    """Two looks at one installation give one document."""
    more = made("dev")
    assert listed()["dev"] - {"syncbrok"} <= {one["name"] for one in more["components"]}
    assert made("dev") == more
