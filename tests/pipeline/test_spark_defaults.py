"""config/spark-defaults.conf gives a Spark that somebody else starts what ``session`` gives its own."""

from pathlib import Path

from syncbrok.pipeline.session import SETTINGS, launch_environment

DEFAULTS = Path(__file__).parents[2] / "config" / "spark-defaults.conf"


def test_the_file_says_what_a_session_sets() -> None:
    """Every setting and the driver's options; whether there is a page of Spark's own is anybody's choice."""
    lines = [line.split(None, 1) for line in DEFAULTS.read_text().splitlines() if line and not line.startswith("#")]
    said = {name: value.strip() for name, value in lines}
    options = said.pop("spark.driver.extraJavaOptions").split()
    assert said == {name: value for name, value in SETTINGS.items() if name != "spark.ui.enabled"}
    started = launch_environment({}, little=False)["SPARK_SUBMIT_OPTS"].split()
    assert options == [one for one in started if not one.startswith(("-Dspark.", "-Dlog4j2."))]
