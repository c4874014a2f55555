"""The simulated broker.

simulated_broker  the broker: topics, publishing, traits
source            what one life of the sidecar consumes with: lanes, polls, commits, seeks
storage           the records of all lanes, and how far the group has committed
faults            which calls fail, hang, repeat or are slow
"""
