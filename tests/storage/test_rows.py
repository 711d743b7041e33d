from transom.storage.rows import Batch, FactorRow, MessageRow, PreambleRow, RequestRow, SummaryRow


def test_a_completion_id_is_kept_short_enough_for_an_index() -> None:
    def made(completion_id: str | None) -> str | None:
        return RequestRow("r", b"s", b"h", 1.0, "m", "p", completion_id=completion_id).completion_id

    assert made("chatcmpl-1") == "chatcmpl-1"
    assert made(None) is None
    assert made("x" * 100_000) == "x" * 200


def test_a_batch_says_what_it_weighs() -> None:
    message = MessageRow(b"i", b"s", None, bytes(5000), 1, 1, "user")
    textless = MessageRow(b"j", b"s", None, None, 1, 1, "user")
    batch = Batch(messages=[message, textless], preambles=[PreambleRow(b"p", b"s", bytes(300), 1)])
    assert 5300 < batch.size < 7000
    assert Batch().size > 0


def test_what_a_model_wrote_is_stored_as_text_that_can_be_read() -> None:
    summary = SummaryRow(b"i", b"s", b"u", 1, None, "nul \x00, é, half \ud83d", 1, "m", "1", ("é", "\ud83d"), ("\x00",))
    assert summary.text_bytes.decode() == "nul \x00, é, half ?"
    assert summary.constraints_json == '["é", "?"]'
    assert summary.ledger_json == '["\\u0000"]'
    assert FactorRow("m", (1.0, 0.5), 1.0).ratios_json == "[1.0, 0.5]"
