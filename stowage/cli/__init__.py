"""The command ``stowage``, and ``kubectl stowage``.

::

    main        the command, its options, exit codes and errors
    output      tables for people; JSON, YAML and CSV for programs
    cluster     asks a service: submit, why, top, plan, decisions
    policies    the scheduler's configuration: get, effective, set, diff, canary
    machine     of this machine: up, manage, simulate, replay, pack, tokens, backup, doctor

Commands of this machine are those of ``manage.py`` with shorter names; commands that ask a service
go through ``stowage.client``.
"""
