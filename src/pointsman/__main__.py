"""``python -m pointsman``: the same as the ``pointsman`` command."""

from pointsman.actors.main import main

if __name__ == "__main__":
    main()
