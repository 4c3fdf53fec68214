"""Secrets in logged texts: what is masked by default, what is left as it is, and how long it takes."""

from __future__ import annotations

import json
import time

import pytest

from components.config import load_config
from components.errors import ConfigError
from components.trajectories.imports.secrets import MASK, REMEMBERED_LENGTH, Masker

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJVadQssw5c"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEvQIBADAN\nBgkqhkiG=\n"
    "-----END RSA PRIVATE KEY-----"
)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("use sk-abcdefghijklmnop1234 now", "use [masked] now"),
        ("Authorization: Bearer abcdefghijklmnop.q", "Authorization: Bearer [masked]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [masked]"),
        ('{"Authorization": "Basic dXNlcjpwYXNzd29yZA=="}', '{"Authorization": "Basic [masked]"}'),
        ('{"api_key": "abc123456"}', '{"api_key": "[masked]"}'),
        (r'"{\"password\": \"hunter22\"}"', r'"{\"password\": \"[masked]\"}"'),
        ("password=hunter22 and so on", "password=[masked] and so on"),
        ("password=password", "password=[masked]"),
        (r"password=DOM\user22", "password=[masked]"),
        ("OPENAI_API_KEY=abc123456", "OPENAI_API_KEY=[masked]"),
        ("export DB_PASSWORD='hunter22'", "export DB_PASSWORD='[masked]'"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+b", "AWS_SECRET_ACCESS_KEY=[masked]"),
        ("client_secret=abcdef1234&x=", "client_secret=[masked]"),
        ('{"clientSecret":"abcdef1234"}', '{"clientSecret":"[masked]"}'),
        ("DEPLOY_TOKEN=abcdef1234", "DEPLOY_TOKEN=[masked]"),
        ("x-auth-token: abcdef1234", "x-auth-token: [masked]"),
        ("postgres://user:pw@host:5432/db", "postgres://user:[masked]@host:5432/db"),
        ("redis://:p@ss@host", "redis://:[masked]@host"),
        (f"cookie={JWT}; path=/", "cookie=[masked]; path=/"),
        (f"key:\n{PEM}\nend", "key:\n[masked]\nend"),
        (json.dumps(PEM), '"[masked]"'),
        (PEM[:60], "[masked]"),
        ("AKIAABCDEFGHIJKLMNOP", "[masked]"),
        ("xoxb-123456789012-abcdefABCDEF", "[masked]"),
        (f"hf_{LETTERS}", "[masked]"),
        (f"ghp_{LETTERS}", "[masked]"),
        (f"github_pat_11ABCDE_{LETTERS}", "[masked]"),
        (f"?key=AIza{LETTERS}", "?key=[masked]"),
        (f"sk_live_{LETTERS}", "[masked]"),
        (f"STRIPE=rk_live_{LETTERS}", "STRIPE=[masked]"),
        (f"glpat-{LETTERS[:20]}", "[masked]"),
        (f"npm_{LETTERS}", "[masked]"),
        (f"pypi-AgEIcHlwaS5vcmc{LETTERS}", "[masked]"),
        (f"SG.{LETTERS}.{LETTERS}", "[masked]"),
        ("GET /a?token=abcd1234efgh&page=2", "GET /a?token=[masked]&page=2"),
        ("https://x.blob/b?sv=1&sig=aB%2Fc12345%3D", "https://x.blob/b?sv=1&sig=[masked]"),
        ("https://x/cb?access_token=abcd1234#top", "https://x/cb?access_token=[masked]#top"),
        ("https://x/?q=1&api_key=abcd1234", "https://x/?q=1&api_key=[masked]"),
        ("https://s3/x?X-Amz-Signature=0f0f0f0f", "https://s3/x?X-Amz-Signature=[masked]"),
        ("login --password hunter22 --user a", "login --password [masked] --user a"),
        ("login --token=abcd1234", "login --token=[masked]"),
        ('["login", "--password", "hunter22"]', '["login", "--password", "[masked]"]'),
        (r'{"cmd": "login --auth-token \"abcd1234\""}', r'{"cmd": "login --auth-token \"[masked]\""}'),
        ("curl -s -u user:pass123 http://x", "curl -s -u user:[masked] http://x"),
        ("curl --user 'bob:pw' http://x", "curl --user 'bob:[masked]' http://x"),
    ],
)
def test_secrets_are_masked_by_default(text, masked):
    masker = Masker(load_config().data.secret_patterns)
    assert masker.mask(text) == masked and masker.found == 1
    assert masker.mask(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the secret of the house",
        "put the key on the table",
        "the password is wrong",
        "take key 1 from drawer 2; key 1 is rusty",
        "token count: 12",
        "max_tokens=4096 and next token: the",
        "Enter your password: ",
        "textbox 'Password:' value=''",
        "The secretary: Ms Johnson-Smith",
        "Authorization: Basic authentication is required",
        "basic understanding of bearer bonds",
        "http://localhost:8080/a@b and http://a.b:80 or mail x@y.z",
        "the task-oriented-dialogue-system and hf_hub_download_with_retries",
        "eyJust.a.word and eyJ alone",
        "-----BEGIN PUBLIC KEY-----",
        "PWD=/opt/project PRIMARY_KEY=customer_number",
        "ls -la; cat secret.txt; keyboard = mechanical",
        "the token of my affection",
        "password is required",
        "The --password option is required; --token must be given, --secret with care",
        "usage: login [--token TOKEN] [--password PASSWORD] [--api-key KEY_ID] --secret <secret>",
        "docker login --password-stdin; run --token-count 4096 --tokens 4096 --password $PASSWORD",
        "npm_config_loglevel=silent npm_package_version and pypi-publish-workflow-for-releases",
        "sk_live_performances of the glpat-band",
        "https://shop/list?sign=libra-and-virgo&page=2&sig=1 and ?tokens=4096000",
        "curl -u user http://host:80/path and curl -s http://host:80 | grep a:b",
        "the curl of her hair: -u turn",
    ],
)
def test_ordinary_texts_stay(text):
    masker = Masker(load_config().data.secret_patterns)
    assert masker.mask(text) == text and not masker.found


@pytest.mark.parametrize(
    "part",
    ["x", "eyJ", "password", "a://b:", "sk-", "secret ", "authorization: basic ", "\\"]
    + ["curl ", "curl -u ", "--token ", "?token=", "&amp;", "SG.a", "--password \t"],
)
def test_long_texts_take_linear_time(part):
    masker = Masker(load_config().data.secret_patterns)
    began = time.process_time()
    masker.mask("password=" + part * (1_000_000 // len(part)))
    assert time.process_time() - began < 10, "quadratic time would take hours"


@pytest.mark.parametrize(
    ("mask", "masked"),
    [
        (r"[room \d+]", "[masked]: password=[masked]"),
        (r"[none, room \d+]", "[masked]: password=hunter22"),
        ("[none]", "room 12: password=hunter22"),
        ("[]", "room 12: password=[masked]"),
    ],
)
def test_patterns_of_the_config_are_added_to_the_built_in_ones(mask, masked):
    config = load_config(None, [f"data.mask={mask}"])
    assert Masker(config.data.secret_patterns).mask("room 12: password=hunter22") == masked


def test_a_pattern_that_cannot_be_used_is_named():
    with pytest.raises(ConfigError, match=r"data.mask has '\('.*no regular expression"):
        Masker(["("])


@pytest.mark.parametrize("length", [20, REMEMBERED_LENGTH + 1])
def test_a_repeated_secret_is_masked_and_counted_each_time(length):
    masker = Masker(["secret-[0-9]+"])
    text = "secret-1 and secret-2".ljust(length)
    assert [masker.mask(text).strip() for _ in range(3)] == [f"{MASK} and {MASK}"] * 3
    assert masker.found == 6
