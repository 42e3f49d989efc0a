"""The files that a study is composed of: Hydra reads them through a source that stays in the study's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource

from memsweep.config.load.yaml_text import UnsafeError, read_safely
from memsweep.errors import ConfigError

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

SCHEME = "file"


class StudySource(ConfigSource):
    """The YAML files of one folder and below, links followed, as far as they are safe to read."""

    @staticmethod
    def scheme() -> str:
        """What its path begins with."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """One file.

        Raises:
            ConfigError: it is not in the folder, or its content is refused.
        """
        from omegaconf import OmegaConf

        path = self._file(config_path)
        if not path.is_file():
            raise ConfigLoadError(f"there is no file {path}")
        try:
            text = read_safely(path)
        except UnsafeError as error:
            raise ConfigError([f"the file {error}."], f"study file {path}") from error
        header = ConfigSource._get_header_dict(text[:512])
        return ConfigResult(
            config=OmegaConf.create(text) if text.strip() else OmegaConf.create(),
            path=self.full_path(),
            provider=self.provider,
            header=header,
        )

    def available(self) -> bool:
        """Whether the folder is there."""
        return self.is_group("")

    def is_config(self, config_path: str) -> bool:
        """Whether there is such a file; asked about one elsewhere, it refuses, whatever is there."""
        return os.path.isfile(self._file(config_path))

    def is_group(self, config_path: str) -> bool:
        """Whether there is such a folder; asked about one elsewhere, it refuses, whatever is there."""
        return os.path.isdir(self._inside(config_path))

    def list(self, config_path: str, results_filter: Any) -> list[str]:
        """The names of the files and folders in a folder."""
        found: list[str] = []
        for name in os.listdir(self._inside(config_path)):
            self._list_add_result(found, os.path.join(config_path, name), name, results_filter)
        return sorted(set(found))

    def _file(self, config_path: str) -> Path:
        return self._inside(self._normalize_file_name(config_path))

    def _inside(self, name: str) -> Path:
        folder = Path(os.path.realpath(self.path))
        path = Path(os.path.realpath(folder / name))
        if not path.is_relative_to(folder):
            shown = name if len(name) <= 100 else f"{name[:100]}..."
            rule = f"a study is composed of files in its own folder, {folder}, and below; links are followed"
            raise ConfigError([f"{shown!r} lies elsewhere: {rule}. Move or copy the file there."], "the study")
        return path


def guard(loader: ConfigLoader) -> None:
    """Put a ``StudySource`` in the place of every source of files that a loader of Hydra's has."""
    sources = loader.get_sources()
    for index, source in enumerate(sources):
        if source.scheme() == SCHEME:
            sources[index] = StudySource(source.provider, source.full_path())
    if not any(isinstance(source, StudySource) for source in loader.get_sources()):
        raise RuntimeError("this version of Hydra keeps its sources elsewhere; memsweep needs Hydra 1.3")
