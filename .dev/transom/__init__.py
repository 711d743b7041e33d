"""Transom: an OpenAI-compatible LLM proxy with automatic context windowing."""

__version__ = "0.1.0"
