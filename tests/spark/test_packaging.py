"""What users install is this version of the bridge, with the client of the same version."""

import tomllib
from pathlib import Path

import offramp

ROOT = Path(__file__).parents[2]


def test_bridge_and_client_have_one_version() -> None:
    project = tomllib.loads((ROOT / "spark_bridge" / "pyproject.toml").read_text())["project"]
    assert project["version"] == offramp.__version__
    assert f"offramp=={offramp.__version__}" in project["dependencies"]


def test_the_wheel_has_what_spark_looks_for() -> None:
    """A package with a name that begins with `pyspark_`, beside the bridge."""
    packages = tomllib.loads((ROOT / "spark_bridge" / "pyproject.toml").read_text())["tool"]["poetry"]["packages"]
    assert {"include": "pyspark_offramp"} in packages
    assert (ROOT / "spark_bridge" / "pyspark_offramp" / "__init__.py").exists()


def test_executors_need_nothing_of_the_sidecar() -> None:
    """Neither its code nor its brokers' clients."""
    sources = "\n".join(path.read_text() for path in (ROOT / "spark_bridge").glob("*.py"))
    assert not [name for name in ("sidecar", "confluent_kafka", "pulsar", "yaml") if f"import {name}" in sources]
    assert "from sidecar" not in sources
