"""``python -m optimargin`` is the program ``optimargin``."""

from optimargin.cli import main

if __name__ == "__main__":
    main()
