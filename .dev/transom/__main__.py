"""Run the command line with `python -m transom`."""

from transom.proxy.cli import main

main()
