"""Loads a configuration from text, in the folder of the test."""

from pathlib import Path

from sidecar import config
from sidecar.model.errors import ConfigError
from sidecar.settings import Settings


def load(text: str, **environ: str) -> Settings:
    Path("c.yaml").write_text(text, "utf-8")
    return config.load("c.yaml", environ=environ)


def problems(text: str, **environ: str) -> list[str]:
    """The lines of the error; none, if it loads."""
    try:
        load(text, **environ)
    except ConfigError as error:
        return str(error).splitlines()
    return []
