"""Webhooks: what goes over the wire, which addresses are refused, and what each reply means."""

import asyncio
import hmac
import json
from base64 import b64decode, b64encode
from email.utils import formatdate
from typing import Any

import pytest

from perdure import Engine, workflow
from perdure.core.buses.signatures import secret_bytes, signature_headers
from perdure.core.errors import BusRefused, BusUnavailable, InputError
from perdure.host.bus.webhook import Webhook
from tests.client.engines import assert_sound
from tests.host.bus.events import contract_event
from tests.host.bus.receivers import receiving, status

KEYS = [bytes(range(32)), bytes(range(1, 33))]
SECRETS = ["whsec_" + b64encode(key).decode() for key in KEYS]
AT_S = 1_700_000_500


def webhook(url: str, **options: Any) -> Webhook:
    given = {"secrets": SECRETS, "allow_private": True, "timeout": 5, **options}
    bus = Webhook(url, **given)
    bus.clock = lambda: AT_S
    return bus


@workflow
async def answer() -> str:
    return "forty-two"


async def test_an_event_is_a_signed_cloud_event() -> None:
    async with receiving() as receiver:
        event = contract_event()
        await webhook(receiver.url, headers={"X-Tenant": "acme"}).publish(event)
        (request,) = receiver.requests
    assert request.line == "POST /hook?tenant=1 HTTP/1.1"
    headers, sent = request.headers, json.loads(request.body)
    assert headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert headers["Content-Type"] == "application/cloudevents+json"
    assert headers["X-Tenant"] == "acme"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (event.event_id, str(AT_S))
    signed = f"{event.event_id}.{AT_S}.".encode() + request.body
    given = [b64decode(each.removeprefix("v1,")) for each in headers["webhook-signature"].split()]
    assert given == [hmac.digest(key, signed, "sha256") for key in KEYS]
    data = sent.pop("data")
    assert sent == {
        "specversion": "1.0",
        "id": event.event_id,
        "source": "/perdure/acme%2Flive/check%20out",
        "type": "perdure.StepCompleted",
        "subject": event.run_id,
        "time": "2023-11-14T22:13:20.123Z",
        "sequence": "0000000003",
        "datacontenttype": "application/json",
    }
    assert data["data"] == {"result": {"total": 42, "name": "Ä"}}
    assert (data["run_id"], data["seq"], data["step"]) == (event.run_id, 3, "root.0")


def test_the_signature_is_that_of_the_specification() -> None:
    """The example in the specification of Standard Webhooks."""
    key = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = signature_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("reply", "retry_after"),
    [
        (status(500), None),
        (status(503, "Retry-After: 7"), 7),
        (status(429, f"retry-after: {formatdate(AT_S + 9, usegmt=True)}"), 9),
        (status(408, "Retry-After: soon"), None),
        (b"SSH-2.0-server\r\n\r\n", None),
        (b"HTTP/1.1 abc\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nX: 1\r\n", None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 9000 + b"\r\n", None),
        (b"HTTP/1.1 200 " + b"k" * 40_000 + b"\r\n\r\n", None),
        (b"", None),
    ],
)
async def test_a_receiver_that_is_busy_or_broken_is_tried_again(
    reply: bytes, retry_after: float | None
) -> None:
    async with receiving() as receiver:
        receiver.replies = [reply]
        with pytest.raises(BusUnavailable) as unavailable:
            await webhook(receiver.url).publish(contract_event())
        assert unavailable.value.retry_after == retry_after


@pytest.mark.parametrize("code", [301, 302, 307, 400, 401, 404, 410, 422])
async def test_other_replies_refuse_the_event_and_no_redirect_is_followed(code: int) -> None:
    async with receiving() as receiver:
        receiver.replies = [status(code, f"Location: {receiver.url}")]
        with pytest.raises(BusRefused, match=str(code)):
            await webhook(receiver.url).publish(contract_event())
        assert len(receiver.requests) == 1


async def test_an_interim_reply_is_not_the_reply() -> None:
    async with receiving() as receiver:
        receiver.replies = [status(100) + status(200)]
        await webhook(receiver.url).publish(contract_event())


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "10.0.0.1", "192.168.1.1", "172.16.0.9", "169.254.169.254"),
        *("0.0.0.0", "100.64.0.1", "224.0.0.1", "2130706433", "[::1]", "[fe80::1]", "[fd00::1]"),
        *("[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]"),
    ],
)
async def test_private_addresses_are_refused_however_they_are_written(host: str) -> None:
    bus = Webhook(f"http://{host}/", secrets=SECRETS)
    with pytest.raises(BusUnavailable, match=r"public internet|no address"):
        await bus.publish(contract_event())


async def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that gives another address the second time changes nothing: there is no second time."""
    loop, asked, connected = asyncio.get_running_loop(), [], []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", ("93.184.216.34" if len(asked) == 1 else "127.0.0.1", port))]

    async def open_connection(host: str, *_: Any, **__: Any) -> Any:
        connected.append(host)
        raise ConnectionRefusedError("no such place in a test")

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("perdure.host.bus.http.asyncio.open_connection", open_connection)
    with pytest.raises(BusUnavailable, match="no connection"):
        await Webhook("http://rebinding.example/", secrets=SECRETS).publish(contract_event())
    assert (asked, connected) == (["rebinding.example"], ["93.184.216.34"])


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com", "https://", "https://user:password@example.com/", "example.com", 42),
        *("https://example.com/a b", "https://example.com/\r\nX: 1", "http://[::1", "http://a:b/"),
        "https://exämple.com/",
    ],
)
def test_a_url_that_can_not_be_posted_to_is_refused(url: Any) -> None:
    with pytest.raises(InputError, match="URL"):
        Webhook(url, secrets=SECRETS)


@pytest.mark.parametrize("secrets", [[], "whsec_abc", ["short"], [b64encode(b"x" * 80).decode()]])
def test_a_secret_that_signs_nothing_is_refused_and_not_shown(secrets: Any) -> None:
    with pytest.raises(InputError) as refused:
        Webhook("https://example.com", secrets=secrets)
    assert "short" not in str(refused.value)


def test_a_header_can_not_smuggle_another_one() -> None:
    with pytest.raises(InputError, match="header"):
        webhook("https://example.com", headers={"X": "1\r\nY: 2"})


async def test_the_data_of_events_can_be_left_out() -> None:
    async with receiving() as receiver:
        bus = webhook(receiver.url, payloads=False, types=["RunStarted", "RunCompleted"])
        async with Engine("sqlite:///:memory:", buses=[bus]) as engine:
            await (await engine.start(answer())).result()
            await assert_sound(engine)
        bodies = [json.loads(request.body) for request in receiver.requests]
    assert [body["type"] for body in bodies] == ["perdure.RunStarted", "perdure.RunCompleted"]
    assert all(body["data"].get("data", {}) == {} for body in bodies)
    assert not any(b"forty-two" in request.body for request in receiver.requests)
