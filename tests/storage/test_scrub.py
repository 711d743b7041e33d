from transom.storage.rows import Batch, MessageRow, SummaryRow
from transom.storage.scrub import label, scrubbed


def test_labels_lose_only_what_no_text_column_takes() -> None:
    assert label("gpt-4o é 😀") == "gpt-4o é 😀"
    assert label("a\x00b") == "a\ufffdb"
    assert label("half \ud83d of it") == "half \ufffd of it"


def test_content_stays_as_it_is() -> None:
    message = MessageRow(b"i", b"s", None, b"\x00\xff", 1, 1, "us\x00er")
    summary = SummaryRow(b"i", b"s", b"u", 1, None, "\x00\ud83d", 1, "mo\x00del", "1", ("\x00",), ("\x00",))
    clean = scrubbed(Batch(messages=[message], summaries=[summary]))
    assert clean.messages[0].payload == b"\x00\xff"
    assert clean.messages[0].role == "us\ufffder"
    assert clean.summaries[0].text == "\x00\ud83d"
    assert clean.summaries[0].constraints == clean.summaries[0].ledger == ("\x00",)
    assert clean.summaries[0].model == "mo\ufffddel"
