"""Which records are delivered next, and how many at a time.

| module | what it is for |
|---|---|
| `dispatcher` | the next batch, from fresh and returned records in turn |
| `fresh_queue` | lanes with fresh records, served in turn |
| `retry_queue` | records that wait for their next delivery |
| `selection` | what a worker can take, what is selected for it, and when a batch is complete |
| `budget` | limits on concurrency and rate |
| `adaptive_limit` | finds the concurrency with the best throughput |
"""
