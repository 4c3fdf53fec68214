"""What a config says about an endpoint: addresses, keys and options without effect are refused."""

from __future__ import annotations

import pytest
from language.endpoint_questions import KEY

from components.config import load_config
from components.errors import ConfigError


@pytest.mark.parametrize(
    "override",
    [
        f"endpoint.key_variable={KEY}",
        f"endpoint.url=http://user:{KEY}@host/v1",
        f"endpoint.url=http://host/v1?key={KEY}",
    ],
)
def test_a_key_in_the_config_is_refused_and_not_repeated(override):
    with pytest.raises(ConfigError, match="key_variable") as error_info:
        url = [] if override.startswith("endpoint.url") else ["endpoint.url=http://localhost/v1"]
        load_config(None, ["experience_model.teacher=llm", *url, "endpoint.model=m", override])
    assert KEY not in str(error_info.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "http://host:port/v1", "http://[::1/v1"]
)
def test_an_invalid_address_is_refused(url):
    with pytest.raises(ConfigError, match=r"url is not a plain http\(s\) address"):
        load_config(None, ["experience_model.teacher=llm", "endpoint.model=m", f"endpoint.url='{url}'"])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["experience_model.teacher=llm", "endpoint.model=m"],
            r"but endpoint\.url is empty.*endpoint\.url=http://localhost:8000/v1",
        ),
        (["experience_model.teacher=llm"], r"endpoint\.url and endpoint\.model is empty"),
        (
            ["experience_model.reasoning=false", "experience_model.teacher=llm"],
            "teacher has no effect with reasoning: false",
        ),
        (
            ["endpoint.retries=0", "endpoint.backoff_seconds=3"],
            "backoff_seconds has no effect with retries: 0",
        ),
    ],
)
def test_an_endpoint_without_effect_or_without_a_name_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


def test_an_endpoint_that_no_stage_asks_is_refused_by_a_training():
    config = load_config(None, ["endpoint.model=m"])
    with pytest.raises(ConfigError, match=r"endpoint\.model has no effect: nothing asks.*teacher=llm"):
        config.require_endpoint_user()
    load_config(
        None, ["fidelity.judged=1", "endpoint.model=m", "endpoint.url=http://h/v1"]
    ).require_endpoint_user()
