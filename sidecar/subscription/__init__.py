"""A subscription with mode `leases`: the half that awaits. The bookkeeping is in `sidecar.core`.

| module | what it is for |
|---|---|
| `subscription` | the owner of all state of a subscription, and what servers and operators call |
| `events` | what the parts below report to it |
| `session` | one connected worker process |
| `fetcher` | polls the broker, and pauses lanes that have no room |
| `assignment` | applies what a poll returns: lanes that come and go, and records |
| `delivery` | delivers batches to sessions with capacity |
| `settlement` | applies workers' settlements, ends leases, redelivers, parks and dead-letters |
| `side_topic_writer` | writes records to the retry topic and the dead-letter topic |
| `left_topics` | notices records in a topic that was the retry topic before |
| `committer` | commits what is settled, and moves lanes |
| `troubles` | the current problems, for operators |
| `status_report` | the status |
| `dead_letters` | lists dead letters, sends them back and deletes them, for operators |
| `dead_letter_reader` | reads the dead-letter topic: what is in it, and what was done with it |

The walk of a batch: `fetcher` -> `assignment` -> `delivery` -> a session's consumer; its settlement: `subscription` ->
`settlement` -> `committer`.
"""
