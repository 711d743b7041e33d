"""`transom demo`: the proxy at work, offline and without a key; every number on the screen comes from the proxy."""

from transom.proxy.cli.demo.show import demo

__all__ = ["demo"]
