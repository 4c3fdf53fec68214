"""A world by configuration alone: the blocks of the guide, of at most ten lines, keep the contract."""

import re
from pathlib import Path

import pytest
from text_worlds import FACTORY, counting_server

from components.config import load_config
from components.environments import make_adapter
from components.environments.contract.adapter_contract import check

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "add-a-world.md"
URL = "http://localhost:8000"


def block(name):
    """The first YAML block of the guide for the world `name`."""
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return next(text for text in blocks if f"  name: {name}\n" in text)


def promises_kept_by(text, directory):
    """The promises that the world of a config keeps; fails with those that it breaks."""
    file = directory / "my_world.yaml"
    file.write_text(text)
    config = load_config(file)
    findings = []
    is_kept = check(config, make_adapter(config.environment), findings.append)
    wrong = [f"{finding.promise} {finding.found}" for finding in findings if finding.state == "wrong"]
    assert is_kept, "; ".join(wrong)
    return {finding.promise for finding in findings}


@pytest.mark.parametrize("name", ["openenv", "gymnasium"])
def test_the_guides_block_is_short_and_keeps_the_contract(name, tmp_path):
    text = block(name)
    assert len(text.splitlines()) <= 10
    if name == "openenv":
        with counting_server() as url:
            assert URL in text and promises_kept_by(text.replace(URL, url), tmp_path)
    else:
        assert "my_shop:Shop" in text and promises_kept_by(text.replace("my_shop:Shop", FACTORY), tmp_path)
