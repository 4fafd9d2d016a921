"""Settings of a run: defaults, the config file, the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.api.errors import SetupError
from fedplug_runs.settings import Settings


def test_settings_come_from_the_config_file_then_the_environment_then_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    assert Settings.load() == Settings()
    (tmp_path / "fedplug").mkdir()
    config = tmp_path / "fedplug" / "config.toml"
    config.write_text('device = "cpu"\nworkers = 3\noutput = "~/r"\ndata = "/a"\nrecord_wire = true\n')
    loaded = Settings.load()
    assert loaded == Settings("local", 3, "cpu", Path.home() / "r", Path("/a"), True)
    monkeypatch.setenv("FEDPLUG_DATA", "/b")
    assert Settings.load().data == Path("/b")
    assert Settings.load().replace({"data": Path("/c"), "device": None}).data == Path("/c")
    for text, complaint in (
        ("divice = 'x'", "unknown key 'divice'; did you mean device?"),
        ("resident = 3", "unknown key 'resident'; it is now called max_clients_in_memory"),
        ("workers = 'x'", "workers='x' must be a whole number"),
        ("workers = true", "workers=True must be a whole number"),
        ("workers = 0", "workers=0 must be >= 1"),
        ("timeout = 1.5", "timeout=1.5 must be a whole number"),
        ("timeout = -1", f"{config}: timeout=-1 must be >= 0; it is in seconds, and 0 means no limit"),
        ("= 1", "cannot be read"),
    ):
        config.write_text(text)
        with pytest.raises(SetupError, match=complaint.replace("?", r"\?")):
            Settings.load()
    with pytest.raises(SetupError, match="cannot be read"):
        Settings.load(tmp_path / "absent.toml")


def test_lists_of_extensions_have_their_own_words_in_the_config_file(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('with = ["a.b", "{use: c.d}"]\nwithout = ["lab.report"]\n')
    assert Settings.load(config) == Settings(listeners=("a.b", "{use: c.d}"), muted=("lab.report",))
    config.write_text("with = [1]\nlisteners = []\nquiet = true\n")
    with pytest.raises(SetupError) as caught:
        Settings.load(config)
    first, *others = str(caught.value).splitlines()
    assert first == f"{config}: with=[1] must be a list of texts in quotes"
    assert len(others) == 2, "what a config file cannot hold is unknown there"
    assert all("unknown key" in line for line in others)


def test_an_engine_comes_with_its_options_as_text_as_a_mapping_and_in_the_config_file(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('engine = {use = "acme.far", host = "h", cores = 2}\n')
    loaded = Settings.load(config)
    assert (loaded.engine, loaded.engine_options) == ("acme.far", {"host": "h", "cores": 2})
    for more in ("{use: acme.far, cores: 3}", {"use": "acme.far", "cores": 3}):
        assert loaded.replace({"engine": more}).engine_options == {"host": "h", "cores": 3}
    assert loaded.replace({"engine": "acme.far"}) == loaded
    assert loaded.replace({"engine": "local"}).engine_options == {}, "they are those of one engine"
    for wrong in ("{use: [1]}", "{use", {"host": "h"}, 3):
        with pytest.raises(SetupError, match=r"must be the name of a component, or \{use: NAME, option: value\}"):
            loaded.replace({"engine": wrong})
