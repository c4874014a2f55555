"""Authentication, rights, and what must stay secret. `docs/security.md` names these tests."""
