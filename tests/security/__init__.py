"""Who may come in, what they may do, and what nobody ever sees. `docs/security.md` names these tests."""
