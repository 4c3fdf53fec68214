"""`python -m flows.cli`: the `dreamgym` command without an installed script."""

from flows.cli import main

main()
