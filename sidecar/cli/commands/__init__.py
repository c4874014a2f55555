"""The commands, one module each.

`arguments(parser)` declares what the command takes; `run(args)` runs it and returns the exit code. The docstring of
the module is the help of the command: what it does, then examples.

run             the sidecar itself
demo            the demo, where it is installed
lint            check a configuration, or print one
health          probe the sidecar of this pod
status, top     what a sidecar does, once or live
publish         lines of a file or pipe to messages
consume         records to a pipe, acked once written
dead_letters    list dead letters
redrive         send dead letters back to their group
delete_dead_letters  delete dead letters
pause, resume   stop and start deliveries
seek            move a subscription to another position
delete_group    delete a group of the local broker
version         versions of Offramp and its libraries
"""
