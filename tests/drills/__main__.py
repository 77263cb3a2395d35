"""`python -m tests.drills`: prepare Django, then do what the command line says."""

import os
import sys

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    django.setup()

    from tests.drills import command

    command.main(sys.argv[1:])
