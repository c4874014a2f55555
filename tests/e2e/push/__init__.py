"""Real sidecars that push to real servers in other processes.

| module | what it is for |
|---|---|
| `app` | an ASGI app that answers as its rules say, and notes every call |
| `grpc_app` | the same as a gRPC server |
| `fpm` | a real php-fpm |
| `harness` | the process of that app, and a sidecar that pushes to it |
"""
