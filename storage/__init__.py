"""The stored conversations: rows, look-ups and one writer; knows SQL and nothing of HTTP or of what a message says."""
