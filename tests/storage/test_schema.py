from sqlalchemy import Double, LargeBinary

from transom.storage import schema


def test_times_are_seconds_in_columns_that_say_so() -> None:
    for table in schema.metadata.tables.values():
        for column in table.c:
            assert isinstance(column.type, Double) == column.name.endswith("_at"), column


def test_only_bytes_from_outside_are_blobs() -> None:
    blobs = {c.name for table in schema.metadata.tables.values() for c in table.c if isinstance(c.type, LargeBinary)}
    assert blobs == {"payload", "text"}


def test_everything_that_names_a_session_by_number_is_erased_with_it() -> None:
    naming = {
        table
        for table in schema.metadata.tables.values()
        for key in table.foreign_keys
        if key.column is schema.sessions.c.seq
    }
    assert set(schema.OF_A_SESSION) == naming
    assert schema.messages in naming
