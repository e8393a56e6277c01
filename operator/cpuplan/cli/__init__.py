"""The commands `cpuplan` and `kubectl cpuplan`.

What belongs here: arguments, output for people and programs, exit codes. What does not: reading the host,
deciding, applying. May import: everything below it; the processes (agent, controller, webhook) only when
their subcommand is called, and packages outside the standard library only where a function needs them.
"""
