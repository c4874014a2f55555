"""Subscriptions with mode `ranges`, for readers that keep their own checkpoint (Spark), and reads by position.

| module | what it is for |
|---|---|
| `subscription` | the owner of the group's cursor: attach, plan, commit |
| `planner` | how far the next range of each lane may extend |
| `reader` | reads topics by position or time, whichever the mode of the subscription |
"""
