"""Simulated workers: most of the time they process batches, and now and then they do whatever a worker can do wrong.

streaming  workers on the `Consume` stream
fetching   workers that use `Fetch`
handler    the business code of both, with its habits
"""
