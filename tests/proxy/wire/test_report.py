import json

import pytest

from transom.proxy.wire.report import any_report, presentable, read_report, reported_in

OPENAI = b'{"error": {"message": "No.", "type": "t", "param": "p", "code": "c"}}'


@pytest.mark.parametrize(
    ("body", "message", "status"),
    [
        (OPENAI, "No.", None),
        (b'{"error": {"message": "No.", "code": 429}}', "No.", 429),
        (b'{"error": {"message": "No.", "code": "503"}}', "No.", 503),
        (b'{"error": {"message": "No.", "status": "UNAVAILABLE", "code": 503}}', "No.", 503),
        (b'{"error": {"message": "No."}, "status": 402}', "No.", 402),
        (b'{"error": {"message": "No.", "code": 1261}}', "No.", None),
        (b'{"error": {"message": "No.", "code": true, "status": 200}}', "No.", None),
        (b'{"error": {"message": "No.", "code": "\xd9\xa4\xd9\xa0\xd9\xa0"}}', "No.", None),
        (b'{"error": {"message": {"en": "No."}}}', '{"en":"No."}', None),
        (b'{"error": "No."}', "No.", None),
        (b'{"error": true, "reason": "No."}', "No.", None),
        (b'[{"error": {"message": "No.", "code": 400}}]', "No.", 400),
        (b'{"object": "error", "message": "No.", "type": "BadRequestError", "code": 400}', "No.", 400),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "No."}}', "No.", None),
        (b'{"error": {"code": 500}}', "The model's server reported an error and did not say which.", 500),
    ],
)
def test_errors_are_known_in_every_shape(body: bytes, message: str, status: int | None) -> None:
    report = read_report(body)
    assert report is not None
    assert (report.message, report.status) == (message, status)
    assert isinstance(json.loads(report.body)["error"], dict)
    assert json.loads(report.event.removeprefix(b"data: ")) == json.loads(report.body)


def test_openais_own_shape_keeps_its_bytes() -> None:
    report = read_report(OPENAI)
    assert report is not None
    assert report.body is OPENAI


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{torn",
        b"null",
        b"[]",
        b'["error"]',
        b'{"error": null, "choices": []}',
        b'{"message": "Hello."}',
        b'"error"',
    ],
)
def test_what_reports_no_error(body: bytes) -> None:
    assert read_report(body) is None


def test_in_a_stream_an_events_name_may_say_it() -> None:
    said = b'data: {"choices": []}\n\n'
    for data in (b"data: Too hot.", b'data: {"message": "Too hot."}', b"data: Too hot.\ndata: "):
        found = reported_in(said + b"event: error\n" + data + b"\n\n" + said)
        assert found is not None
        assert (found[0], found[1].message.strip()) == (said, "Too hot.")
    assert reported_in(said + b": event: error\n\nevent: errors\n" + said) is None


def test_an_event_is_one_line() -> None:
    pretty = json.dumps(json.loads(OPENAI), indent=1).encode()
    assert any_report(pretty).event.count(b"\n") == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"upstream connect error", "upstream connect error"),
        (b"<html>Bad gateway</html>", "The model's server answered with status 502 and a page instead of an error."),
        (b" \n", "The model's server answered with status 502 and no word of why."),
        (b'"No."', '"No."'),
        (b'[{"error": {"message": "No."}}]', "No."),
        (b"x" * 10_000, "x" * 4_096),
    ],
)
def test_what_is_no_object_is_put_into_one(body: bytes, message: str) -> None:
    error = json.loads(presentable(502, body))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] == message


@pytest.mark.parametrize("body", [OPENAI, b'{"detail": [{"msg": "extra"}]}', b' {"caf\xe9": 1}\r\n'])
def test_an_object_keeps_its_bytes(body: bytes) -> None:
    assert presentable(422, body) is body
