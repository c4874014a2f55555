"""Consuming as a member of a group. The poll thread owns the librdkafka consumers; the rest runs on the event loop.

On the event loop, from the outside in:
source              the contract's `Source`: one group for the topics of a subscription, one for its retry topic
group_member        the member of one group: starts the poll thread, replaces it, passes on what it reports
background_queries  what the event loop asks of Kafka for the poll thread, which must not wait for answers
start_position      where a lane starts or resumes, by what Kafka stores for the group
health              problems of connection, group and topics, and when they are over

On the poll thread:
poll_thread         the loop that polls: commands in, records out
rebalance           lanes that are assigned, revoked and lost; called within a poll
position_control    where the thread is in each lane; pauses, resumes and seeks
commits             sends commits, one at a time
"""
