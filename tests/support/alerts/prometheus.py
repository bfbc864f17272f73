"""A real Prometheus with the alerts of ``config/alerts.yml``, whose times are shorter and nothing else."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from tests.support.broker.process import ROOT, held_port, request
from tests.support.polling import eventually_blocking

ALERTS: Final = ROOT / "config" / "alerts.yml"
TOKEN: Final = "a token that Prometheus has"
"""where a broker asks for one"""
_FOR, _WINDOW = "2s", "20s"
_SHORTER: Final = {
    "SyncbrokDiskHangs": ("> 5", "> 2"),
    "SyncbrokUncleanStart": ("< 3600", "< 60"),
    "SyncbrokTornTail": ("< 86400", "< 60"),
    "SyncbrokDiskWillFill": ("24 * 3600", "60"),
    "SyncbrokSubscriberFailing": ("> 1800", "> 3"),
    "SyncbrokMessageStuck": ("> 86400", "> 3"),
    "SyncbrokDeliverySlow": ("> 60", "> 2"),
}
"""of an alert the seconds in its expression, and those that stand for them here"""


def names(text: str) -> list[str]:
    """The alerts of a file, in its order."""
    return re.findall(r"- alert: (\w+)", text)


def shortened(text: str) -> str:
    """The file of alerts ``text`` with ``for:``, windows, and thresholds that are seconds made short."""
    head, *alerts = re.split(r"(?=^ +- alert: )", text, flags=re.MULTILINE)
    return head + "".join(map(_shortened, alerts))


def _shortened(alert: str) -> str:
    name = names(alert)[0]
    expression = re.search(r"expr: (.*)", alert)
    assert expression is not None, name
    short = re.sub(r"\[\d+[smhd]\]", f"[{_WINDOW}]", expression[0])
    if name in _SHORTER:
        assert short.count(_SHORTER[name][0]) == 1, f"{name}: {_SHORTER[name][0]} stands once in {short}"
        short = short.replace(*_SHORTER[name])
    return re.sub(r"for: \d+[smhd]", f"for: {_FOR}", alert.replace(expression[0], short))


class Prometheus:
    """It scrapes and evaluates every second. As a context manager it runs inside. ``command``: which there is, None
    where there is none."""

    command: Final = shutil.which("prometheus")

    def __init__(self, directory: Path, alerts: str) -> None:
        """``alerts``: the text of a file of alerts."""
        self._directory = directory
        self._targets: dict[str, int] = {}
        directory.mkdir()
        (directory / "alerts.yml").write_text(alerts)
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        found = {"files": [str(directory / "targets.json")], "refresh_interval": "1s"}
        scraped = [{"job_name": "syncbrok", "authorization": {"credentials": TOKEN}, "file_sd_configs": [found]}]
        config = {"global": every, "rule_files": ["alerts.yml"], "scrape_configs": scraped}
        (directory / "prometheus.yml").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        assert self.command is not None, "no prometheus on this machine"
        self._write()
        with held_port() as port, (self._directory / "out").open("wb") as out:
            self.url = f"http://127.0.0.1:{port}"
            config, data = self._directory / "prometheus.yml", self._directory / "data"
            arguments = [f"--config.file={config}", f"--storage.tsdb.path={data}"]
            command = [self.command, *arguments, f"--web.listen-address=127.0.0.1:{port}"]
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
            try:
                eventually_blocking(self._is_ready, self._said)
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def scrape(self, instance: str, port: int) -> None:
        """From now on scrape this port, under this name."""
        self._targets[instance] = port
        self._write()

    def leave(self, instance: str) -> None:
        """Scrape it no more."""
        del self._targets[instance]
        self._write()

    def firing(self, instance: str) -> dict[str, dict[str, str]]:
        """The alerts that fire now for what is scraped under this name, with their annotations."""
        return {
            alert["labels"]["alertname"]: alert["annotations"]
            for alert in self._ask("/api/v1/alerts", {})["alerts"]
            if alert["state"] == "firing" and alert["labels"].get("instance") == instance
        }

    def fired(self, instance: str) -> set[str]:
        """The alerts that have fired until now for what is scraped under this name; "": those without a name."""
        query = f'count_over_time(ALERTS{{alertstate="firing",instance="{instance}"}}[1h])'
        return {one["metric"]["alertname"] for one in self._ask("/api/v1/query", {"query": query})["result"]}

    def is_scraped(self, instance: str) -> bool:
        """Whether it was reached at least twice, the last time too."""
        query = f'up{{instance="{instance}"}} == 1 and count_over_time(up{{instance="{instance}"}}[1m]) > 1'
        return bool(self._ask("/api/v1/query", {"query": query})["result"])

    def _ask(self, path: str, query: dict[str, str]) -> Any:
        answer = request(f"{self.url}{path}?{urlencode(query)}", "GET")
        assert answer.status == 200, answer.body
        return answer.json()["data"]

    def _write(self) -> None:
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance}}
            for instance, port in self._targets.items()
        ]
        written = self._directory / "targets.new"
        written.write_text(json.dumps(targets))
        written.rename(self._directory / "targets.json")

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._said()
        try:
            return request(f"{self.url}/-/ready", "GET").status == 200
        except OSError:
            return False

    def _said(self) -> str:
        return f"Prometheus is ready; it said:\n{(self._directory / 'out').read_text()}"
