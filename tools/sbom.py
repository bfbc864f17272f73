"""The software bill of materials of an installation, as CycloneDX 1.6 in JSON: ``make sbom``.

It lists what this environment has of what Syncbrok asks for, all the way down, with the extras that are named
(``python -m tools.sbom spark``). It is the same for the same installation: no time, no number made up.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

ROOT = "syncbrok"


def bill_of_materials(extras: Iterable[str] = ()) -> dict[str, Any]:
    """The document. Raises ``PackageNotFoundError`` where something that is asked for is not installed."""
    needs = _closure(frozenset(extras))
    found = {name: distribution(name) for name in needs}
    whole = _component(ROOT, found.pop(ROOT))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**whole, "type": "application"}},
        "components": [_component(name, one) for name, one in sorted(found.items())],
        "dependencies": [
            {"ref": _reference(name), "dependsOn": [_reference(one) for one in sorted(wanted)]}
            for name, wanted in sorted(needs.items())
        ],
    }


def _closure(extras: frozenset[str]) -> Mapping[str, set[str]]:
    """Names of all that is needed, each with the names of what it needs itself."""
    needs: dict[str, set[str]] = {}
    ahead = [(ROOT, extras)]
    seen = {(ROOT, extras)}
    while ahead:
        name, wanted = ahead.pop()
        own = needs.setdefault(name, set())
        for requirement in _needed(distribution(name), wanted):
            own.add(_plain(requirement.name))
            following = (_plain(requirement.name), frozenset(requirement.extras))
            if following not in seen:
                seen.add(following)
                ahead.append(following)
    return needs


def _needed(of: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Its requirements that hold on this machine, with these of its extras."""
    for text in of.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _component(name: str, one: Distribution) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": _reference(name),
        "name": name,
        "version": one.version,
        "purl": _reference(name),
        "licenses": _licenses(one),
    }


def _licenses(one: Distribution) -> list[dict[str, Any]]:
    """As its metadata says them: an expression, else classifiers, else a name of one line."""
    expressions = one.metadata.get_all("License-Expression", [])
    if expressions:
        return [{"expression": expressions[0]}]
    classifiers = [each for each in one.metadata.get_all("Classifier", []) if each.startswith("License ::")]
    names = [each.rpartition(" :: ")[2] for each in classifiers] or one.metadata.get_all("License", [])
    short = [each for each in names if each != "OSI Approved" and 0 < len(each) <= 80 and "\n" not in each]
    return [{"license": {"name": each}} for each in short]


def _reference(name: str) -> str:
    """Its package URL."""
    return f"pkg:pypi/{name}@{distribution(name).version}"


def _plain(name: str) -> str:
    """As indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    try:
        print(json.dumps(bill_of_materials(sys.argv[1:]), indent=2))
    except PackageNotFoundError as missing:
        sys.exit(f"{missing.name} is not installed here: make .venv/.installed, or name the extras that are")
