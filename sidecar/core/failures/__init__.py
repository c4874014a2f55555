"""What happens to records that were not acked.

| module | what it is for |
|---|---|
| `redelivery_policy` | decides: redeliver, dead-letter or discard |
| `outage` | tells an outage of the handler from bad records |
| `splitting` | splits a failing batch, to find the record that fails |
| `backoff` | waits after failures |
| `retry_topic` | the format of parked records |
| `dead_letter_topic` | the format of dead letters |
| `dead_letter_notes` | the format of notes on what operators did with them |
| `reason_counts` | records by the reason for which they were dead-lettered or parked |
"""
