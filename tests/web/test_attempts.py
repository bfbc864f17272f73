"""Attempts and contents on the page of a message: when, what went out, what was answered, what is in it."""

import json
from datetime import datetime

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model.facts import Reason
from syncbrok.model.names import id_text
from tests.support.http.page_stage import HOSTILE, Stage, in_browser

BIG = "12345678901234567890123"
TAKE_DOWNLOADS = """
URL.createObjectURL = (blob) => { window.blob = blob; return "about:blank" };
HTMLAnchorElement.prototype.click = function () {
  const name = this.download;
  window.blob.arrayBuffer().then((bytes) => { window.kept = [name, [...new Uint8Array(bytes)]] });
};
"""
TAKE_COPIES = "navigator.clipboard.writeText = async (text) => { window.copied = text }"


@in_browser
async def test_attempts_stand_on_a_line_of_time_with_date_and_zone(stage: Stage) -> None:
    """Each attempt is a mark on the line and a row with its date in UTC and in the reader's zone; the next one too."""
    message = await stage.running.publish("customers", b"fail")
    text = await stage.see("UTC", f"#/messages/{id_text(message)}", ".deliveries .stamp")
    shown = (await stage.api.get(f"/v1/messages/{id_text(message)}")).json()["deliveries"][0]["attempts"][0]["time"]
    assert f"{shown[:10]} {shown[11:23]} UTC" in text
    zone = "new Intl.DateTimeFormat('en-GB', {timeZoneName: 'short'}).formatToParts().at(-1).value"
    assert str(await stage.run(f"return {zone}")) in text
    marks = "return [...document.querySelectorAll('.timeline .moment')].map((one) => one.getAttribute('class'))"
    assert await stage.run(marks) == ["moment is-failed", "moment next"]


@in_browser
async def test_a_request_is_rebuilt_from_the_log_without_its_secrets(stage: Stage) -> None:
    """INTERFACES 3, "What a v1 subscriber receives": endpoint, headers and body as they went out, status and beginning
    of the answer; no signature and no value of a subscriber's own header; as curl too."""
    stage.running.space.handle("http", stage.running.consumer)
    settings = {"name": "posted", "endpoint": "http://127.0.0.1:9/in", "headers": {"X-Key": "hunter2"}}
    subscribed = await stage.api.post("/v1/queues/orders/subscribers", settings)
    assert subscribed.status == 201, subscribed
    parent = await stage.running.publish("cards", b"fine")
    message = await stage.running.publish("orders", b"dead 'quoted'", parent, content_type="text/plain")
    await stage.running.ended(message)
    await stage.see("answered 500", f"#/messages/{id_text(message)}")
    await stage.click("[data-do=request][data-subscriber=posted]")
    text = await stage.see("Answer", selector="#dialog")
    for line in (f"webhook-id: {id_text(message)}", "syncbrok-attempt: 1", f"syncbrok-parents: {id_text(parent)}"):
        assert line in text
    wanted = ("Content-Type: text/plain", "dead 'quoted'", "answered 500", HOSTILE)
    assert not [word for word in wanted if word not in text], text
    assert "x-key: ***" in text.lower()
    assert "webhook-signature" not in text
    assert "hunter2" not in text
    await stage.run(TAKE_COPIES)
    await stage.click("[data-do=copyCurl]")
    copied = await stage.until("return window.copied", what="a copy")
    assert copied.startswith("curl -sS")
    assert r"--data-raw 'dead '\''quoted'\'''" in copied
    assert await stage.do(stage.browser.complaints) == []


@in_browser
async def test_a_rebuilt_request_has_the_time_at_which_it_went(stage: Stage) -> None:
    """INTERFACES 3: ``webhook-timestamp`` is when the attempt began, however long the endpoint took to answer."""
    stage.running.space.handle("http", stage.running.consumer)
    took = AttemptResult(Reason.STATUS, 500, latency_us=9_000_000)
    stage.running.consumer.answer = lambda _: took
    settings = {"name": "posted", "endpoint": "http://127.0.0.1:9/in"}
    assert (await stage.api.post("/v1/queues/orders/subscribers", settings)).status == 201
    message = await stage.running.publish("orders", b"slow")
    await stage.running.ended(message)
    await stage.see("answered 500", f"#/messages/{id_text(message)}")
    shown = (await stage.api.get(f"/v1/messages/{id_text(message)}")).json()["deliveries"]
    began = next(one for one in shown if one["subscriber"] == "posted")["attempts"][0]["time"]
    await stage.click("[data-do=request][data-subscriber=posted]")
    text = await stage.see("after 9000 ms", selector="#dialog")
    assert f"webhook-timestamp: {int(datetime.fromisoformat(began).timestamp())}" in text.splitlines()


@in_browser
async def test_json_is_set_in_lines_at_any_size_and_keeps_its_numbers(stage: Stage) -> None:
    """A content of 700 KiB is shown whole; a number of 23 digits stays what it was."""
    rows = [{"at": at, "text": "x, y: {z}"} for at in range(20_000)]
    content = json.dumps({"rows": rows, "empty": [], "last": "end"}).replace('"end"', BIG)
    message = await stage.running.publish("cards", content.encode())
    await stage.see("Show the content", f"#/messages/{id_text(message)}")
    await stage.click("[data-do=content]")
    await stage.until("return document.querySelector('.content')", what="the content")
    shown = await stage.run("return document.querySelector('.content').textContent")
    assert shown.startswith('{\n  "rows": [\n    {\n      "at": 0,\n      "text": "x, y: {z}"\n    },')
    assert f'"empty": [],\n  "last": {BIG}\n}}' in shown
    assert json.loads(shown)["rows"][-1]["at"] == 19_999


@in_browser
async def test_other_bytes_are_shown_in_hexadecimal(stage: Stage) -> None:
    """Offset, bytes and letters, sixteen a line; copied as they are shown."""
    message = await stage.running.publish("cards", bytes(range(0x30, 0x40)) + b"\xff\x00<b>")
    await stage.see("Show the content", f"#/messages/{id_text(message)}")
    await stage.click("[data-do=content]")
    text = await stage.see("00000010", selector=".content")
    assert "00000000  30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  0123456789:;<=>?" in text
    assert "ff 00 3c 62 3e" in text
    await stage.run(TAKE_DOWNLOADS)
    await stage.click("[data-do=downloadContent]")
    kept = await stage.until("return window.kept", what="a download")
    assert kept == [id_text(message), [*range(0x30, 0x40), 0xFF, 0, *b"<b>"]]
    await stage.run(TAKE_COPIES)
    await stage.click("[data-do=copyContent]")
    assert "0123456789" in await stage.until("return window.copied", what="a copy")
