"""Simulated workers: most of the time they process batches, and now and then they do whatever a worker can do wrong.

streaming    workers that are called by the subscription, without a service between them
real_stream  workers on the `Consume` stream, from byte to byte
fetching     workers that use `Fetch`
messages     what workers say, as messages of the protocol
handler      the business code of all, with its habits
"""
