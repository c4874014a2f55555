"""The queue shape of a broker: each message is acked by a handle that the broker gave with it.

driver  the protocol between the mechanism and a broker
naming  the queues of a topic with several lanes
"""
