"""The queue shape of a broker: each message is acked by a handle that the broker gave with it. Written once, over
drivers.

driver    the protocol between this mechanism and a broker
broker    the contract's Broker: routing, publishing, browsing
source    the contract's Source: polls, commits, troubles
lane      one lane: its receiver, the task that reads from it, and its epochs
held      pure: positions and handles of what is not settled, and what is to be renewed
arrivals  pure: what has arrived and waits to be polled, encoded
credit    pure: how many messages to ask for
parked    pure: who holds parked messages until they are due
naming    pure: the queues of a topic with several lanes
checks    what `offramp lint` says of a subscription to such a broker

A broker is a driver, its options, and a `QueueBroker` of both.
"""
