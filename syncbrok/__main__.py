"""``python -m syncbrok`` is ``syncbrok``."""

from syncbrok.cli.main import main

if __name__ == "__main__":
    main()
