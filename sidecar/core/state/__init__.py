"""The state of lanes and leases.

| module | what it is for |
|---|---|
| `lane` | one epoch of a lane: its ledger, ordering and window, and its counts |
| `ledger` | what is settled in a lane, and so what can be committed |
| `ordering` | which fresh and returned records of a lane may be delivered now |
| `window` | how far past its committed position a lane may be delivered |
| `leases` | batches held by workers: grant, extend, settle, expire |
| `deadlines` | which lease expires next |
| `record_slices` | consecutive records with their history, and groups that are redelivered together |
| `memory_limit` | how much memory records may hold, and which lanes must be paused for it |
"""
