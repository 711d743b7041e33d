"""The command line: what a person types, handed to the parts that do it."""

from transom.proxy.cli.app import main

__all__ = ["main"]
