"""The terms of Offramp as plain types, which every other package may import.

| module | what it is for |
|---|---|
| `records` | lanes, records, chunks, outcomes, settlements, deliveries |
| `limits` | what is kept of reasons and delays that others choose |
| `reasons` | why calls and settlements are refused, for programs |
| `errors` | all errors of the sidecar, as one tree |
| `run_set` | a set of positions, stored as runs |
| `wire` | records and batches as protobuf |
| `clock` | time, for code that awaits |
| `version` | the versions of the sidecar and its protocol |
| `addresses` | `host:port`, and paths of unix sockets |
| `files` | reads files that must be kept secret |
| `lock_file` | a lock file that one process at a time can hold |
| `text` | text for people, without control characters of terminals; numbers, ages, sizes and tables |
| `units` | durations and sizes as people write them |
"""
