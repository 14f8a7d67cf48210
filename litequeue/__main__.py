"""`python -m litequeue` is the command `litequeue`."""

from litequeue.cli import main

if __name__ == "__main__":
    main()
