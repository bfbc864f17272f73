"""The wheel, the image's file and the manifests for Kubernetes: built, judged by their own tools, and started."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from syncbrok import __version__
from syncbrok.config import load_config, refuse_exposed
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig
from tests.whole.test_dependencies import requirements
from tests.whole.test_tidy import ROOT

DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
BUILT_OF = ("syncbrok", "pyproject.toml", "README.md", "LICENSE", "pyspark_syncbrok.py")
TOKEN_SHA = "a" * 64


def run(*command: object, **variables: str) -> str:
    """Its output, both streams; it must end well."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env={**os.environ, **variables}, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy: a build leaves its things beside what it builds."""
    copy = tmp_path_factory.mktemp("source")
    for name in BUILT_OF:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", copy / "dist", copy)
    (built,) = (copy / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and for what it asks for looks into ours."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel)
    (site,) = home.glob("lib/python*/site-packages")
    # Our own editable installation is not seen by that: what it is named in is read in our own directory only.
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def image() -> dict[str, str]:
    """The variables of the image."""
    lines = CONTAINERFILE.read_text().rpartition("\nFROM ")[2]
    return dict(re.findall(r"\b([A-Z_]+)=(\S+)", lines))


def manifests() -> Iterator[dict[str, Any]]:
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        yield from yaml.safe_load_all(file.read_text())


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [one for one in manifests() if one["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
    return spec


def test_the_wheel_is_whole(wheel: Path) -> None:
    """It has every file of the package, the page's and the type marker too, and an index would take it."""
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", wheel)
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (metadata,) = [file.read(name).decode() for name in file.namelist() if name.endswith("/METADATA")]
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "syncbrok").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    assert names == ours | {"pyspark_syncbrok.py"}
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata


def test_what_is_installed_serves(installed: Path, tmp_path: Path) -> None:
    """Installed into a clean environment the command starts a broker as the image and the manifests do; the image's
    health check passes then, and does not before; SIGTERM ends it."""
    assert __version__ in run(installed / "syncbrok", "--version")
    where = "import syncbrok, sys; sys.exit(syncbrok.__file__)"
    at = subprocess.run([installed / "python", "-c", where], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert at.stderr.startswith(str(installed.parent))
    check = json.loads(re.search(r"HEALTHCHECK[^[]*(\[.*\])", CONTAINERFILE.read_text(), re.DOTALL)[1].split("\n")[0])
    for name, text in manifest("ConfigMap")["data"].items():
        (tmp_path / name).write_text(text)
    storage = tmp_path / "storage"
    variables = image() | {
        "SYNCBROK_HOST": "127.0.0.1",
        "SYNCBROK_PORT": "0",
        "SYNCBROK_STORAGE_PATH": str(storage),
        "SYNCBROK_CONFIG": str(tmp_path / "broker.yml"),
        "SYNCBROK_QUEUES": str(tmp_path / "queues.yml"),
        "SYNCBROK_HTTP_TOKENS": f"[{{name: operator, sha256: {TOKEN_SHA}, scopes: [admin, read]}}]",
        "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(installed / "syncbrok"), "serve"]
    broker = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        port = int(re.search(r"127\.0\.0\.1:(\d+)", line)[1])
        run(installed / check[0], *check[1:], SYNCBROK_PORT=str(port))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for path, status in (("/readyz", 200), ("/docs", 200), ("/web/docs.js", 200), ("/v1/queues", 401)):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (status, True), path
        connection.close()
    finally:
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=40)
    assert broker.returncode == 0, said
    with pytest.raises(AssertionError, match="refused"):
        run(installed / check[0], *check[1:], SYNCBROK_PORT=str(port))


def test_the_image_is_nobodys_root() -> None:
    """Hadolint has nothing to say; it runs as a user of its own, who may write to one directory, and installs only what
    is locked, of which each fits what we ask for."""
    assert run(Path(sysconfig.get_path("scripts")) / "hadolint", CONTAINERFILE) == ""
    last = CONTAINERFILE.read_text().rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None
    assert image()["SYNCBROK_STORAGE_PATH"].startswith(re.search(r"^VOLUME (.*)$", last, re.MULTILINE)[1])
    security = pod()["securityContext"]
    assert [security["runAsUser"], security["runAsGroup"]] == [int(one) for one in user.groups()]
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (DEPLOY / "requirements.txt").read_text(), re.MULTILINE))
    for group in ("", "cluster", "otel"):
        for text in requirements()[group]:
            wanted = Requirement(text)
            assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), f"{text}: make lock"
    text = (DEPLOY / "requirements.txt").read_text()
    assert text.count("==") <= text.count("--hash=sha256:")


def test_the_manifests_are_kubernetes() -> None:
    """kubernetes-validate takes each, strictly: no field it does not know. The pod may do nothing but its work, is told
    that it serves by the routes that say so, and has the time that a drain takes."""
    for one in manifests():
        kubernetes_validate.validate(one, "1.31", strict=True)
    (container,) = pod()["containers"]
    may = container["securityContext"]
    assert (may["readOnlyRootFilesystem"], may["allowPrivilegeEscalation"]) == (True, False)
    assert may["capabilities"] == {"drop": ["ALL"]}
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["image"] == f"syncbrok:{__version__}"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod()["terminationGracePeriodSeconds"] > limits.drain_timeout_s
    assert manifest("StatefulSet")["spec"]["replicas"] == 1
    (port,) = manifest("Service")["spec"]["ports"]
    assert str(port["port"]) == str(container["ports"][0]["containerPort"]) == image()["SYNCBROK_PORT"]
    paths = {mount["mountPath"] for mount in container["volumeMounts"]}
    given = {one["name"]: one.get("value", "") for one in container["env"]}
    assert str(Path(given["SYNCBROK_CONFIG"]).parent) in paths
    assert str(Path(image()["SYNCBROK_STORAGE_PATH"]).parent) in paths


def test_what_others_reach_needs_tokens(tmp_path: Path) -> None:
    """The image and the manifests listen for other machines: without a token neither starts."""
    (file := tmp_path / "broker.yml").write_text(manifest("ConfigMap")["data"]["broker.yml"])
    ours = {name: value for name, value in image().items() if name.startswith("SYNCBROK_")}
    for path in (None, file):
        with pytest.raises(BadConfig, match="token"):
            refuse_exposed(load_config(path, ours, {}), has_tokens=False)
    tokens = f"[{{name: operator, sha256: {TOKEN_SHA}, scopes: [admin]}}]"
    refuse_exposed(load_config(file, {**ours, "SYNCBROK_HTTP_TOKENS": tokens}, {}), has_tokens=False)
