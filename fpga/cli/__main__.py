"""`python -m fpga.cli`: the same as the command `countaction`."""

from fpga.cli import main

if __name__ == "__main__":
    main()
