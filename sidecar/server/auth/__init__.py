"""Who may call the sidecar, and what they may do.

caller            who makes a call, and their rights by subscription
guard             interceptor of a listener: authenticates each call by its token, and sets its caller
tokens            the tokens of the configured clients
certificates      the sidecar's own certificate and key, checked before clients see them
credential_store  the certificate and tokens in use, reloaded when their files change
"""
