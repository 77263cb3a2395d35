"""``python -m stowage`` is the command ``stowage``, also in a checkout that is not installed."""

from stowage.cli.main import main

if __name__ == "__main__":
    main()
