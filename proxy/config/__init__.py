"""The configuration: read, checked, compiled and watched; it knows nothing of requests."""
