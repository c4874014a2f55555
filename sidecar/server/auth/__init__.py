"""Who may call the sidecar, and what they may do.

caller        who makes a call, and the rights they have by subscription
guard         at each listener: a token, or the lack of one, to a caller
tokens        the tokens of the configured clients, from their files
certificates  the sidecar's own certificate and key, checked before anybody sees them
files         reading what must be secret
keys          all of these files, read again when they change
"""
