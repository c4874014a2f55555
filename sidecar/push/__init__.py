"""Calls apps that are servers: a worker of a subscription that lives in the sidecar.

| module | what it is for |
|---|---|
| `factory` | makes the pusher of a subscription |
| `pusher` | a session of the subscription: one call for each batch, and what follows from its verdict |
| `gate` | how many calls may be under way: one at a time while the app is not there |
| `verdict` | what a call can end with |
| `app` | an app that is called, whatever the protocol |
| `http` | an app that is called over HTTP |
| `fastcgi` | an app that is called over FastCGI: php-fpm |
| `fastcgi_protocol` | the records of FastCGI |
| `grpc` | an app that is called over gRPC |
| `answers` | what an HTTP answer says of its batch |
| `results` | the outcomes that the body of an answer names |
| `batch` | a batch as it is pushed: its records, decoded, with what is known of earlier deliveries |
| `formats`, `cloudevents` | a batch as body and headers of a call |
| `header_text` | any text as the value of an HTTP header |
| `signature` | signs calls, so that the app can check who calls |
| `own_headers` | the headers of the settings |
| `secret_file` | a secret that is read again when its file changes |
| `replies` | publishes what an app answers |

Only `http` loads a client library, and only if a subscription has `push.url`. There is none for FastCGI that is kept.
"""
