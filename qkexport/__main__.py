"""`python -m qkexport` is the `qkexport` command."""

from qkexport.cli import main

if __name__ == "__main__":
    main()
