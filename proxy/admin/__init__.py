"""The administrator's side: sessions, requests, erasure. Knows the store and the caches, never a request under way."""
